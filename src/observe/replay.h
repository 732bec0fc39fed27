// SPDX-License-Identifier: Apache-2.0
//
// Replay: every block of one device from birth to death, and the totals over time.
//
// The trace is played forward from the state before it: blocks that the segments or a later free
// prove to have been there already stand first. What each block was given comes from SegmentMap, so
// `allocated` is what torch.cuda.memory_allocated() said at that moment, and `reserved` what
// memory_reserved() said.
//
//   event      -1 (before)   alloc 3 MiB   alloc 100 B   free_completed
//   allocated   4 MiB         7 MiB         7 MiB + 512   4 MiB + 512
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "observe/snapshot.h"

namespace headroom::observe {

// No event: a block from before the trace, or one that was never freed.
inline constexpr uint32_t kNoEvent = std::numeric_limits<uint32_t>::max();

struct BlockLife {
  int64_t bytes = 0;                // handed out, at least what was asked for
  uint32_t alloc_event = kNoEvent;  // position in Snapshot::events; kNoEvent: from before
  uint32_t free_event = kNoEvent;   // kNoEvent: alive at the end
  StackId stack{};                  // where it was allocated, as far as known
  uint32_t surplus = 0;             // of `bytes`, beyond what was asked for

  int64_t requested() const { return bytes - surplus; }
  bool from_before() const { return alloc_event == kNoEvent; }
};

// An allocation that failed.
struct OomEvent {
  uint32_t event = 0;
  Bytes requested;
  Bytes device_free;
  StackId stack{};
};

// The allocator takes memory from the device, or gives it back.
struct SegmentEvent {
  uint32_t event = 0;
  Action action = Action::kSegmentAlloc;
  Bytes change;  // of the reserved total
};

// What the segments say about the end.
struct FinalState {
  Bytes allocated;     // blocks in use
  Bytes requested;     // what was asked for in them
  Bytes pending_free;  // freed, but another stream may still use them
  Bytes reserved;      // all segments
  Bytes largest_free;  // the longest free block: the largest request that needs no new segment
  Bytes releasable;    // segments without a block in use: what empty_cache gives back
};

struct Replay {
  int device = 0;
  Range events;                   // of this device
  std::vector<BlockLife> blocks;  // from before first, then in order of allocation
  Bytes start_allocated;
  Bytes start_reserved;
  Bytes peak_allocated;
  Bytes peak_reserved;
  Bytes end_allocated;
  Bytes end_reserved;
  // Reserved of which neither segments nor events tell, as in a trace without segments: blocks lay
  // in it. Part of the reserved totals.
  Bytes untold;
  uint32_t peak_event = kNoEvent;  // the first at which allocated is highest; kNoEvent: the start
  std::vector<SegmentEvent> segments;  // in order, as are
  std::vector<OomEvent> ooms;
  FinalState final_state;
  // Events that contradict the rest: frees of unknown blocks, blocks at addresses in use.
  uint64_t contradictions = 0;
};

// The device that the snapshot is mostly about: the one with the most events, else with the most
// reserved memory.
int BusiestDevice(const Snapshot& snapshot);
// Devices that have events or segments.
std::vector<int> DevicesIn(const Snapshot& snapshot);

// Plays one device. Fails only on sums that no machine's memory has.
Result<Replay> ReplayDevice(const Snapshot& snapshot, int device);

// Reserved after `event`.
Bytes ReservedAfter(const Replay& replay, uint32_t event);

}  // namespace headroom::observe
