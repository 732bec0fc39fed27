// SPDX-License-Identifier: Apache-2.0
//
// EventTable: the events of a trace, each distinct one once.
//
// A training loop asks for the same blocks at the same addresses in every step, so that millions of
// events are thousands of distinct ones: an event costs the four bytes of its number, and its time.
//
//   alloc A | alloc B | free A | alloc A | alloc B | free A       numbers 0 1 2 0 1 2
//   distinct: alloc A, alloc B, free A
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ledger/distinct_values.h"
#include "observe/stack_table.h"
#include "observe/time_column.h"

namespace headroom::observe {

enum class Action : uint8_t {
  kAlloc,          // a block is handed out
  kFreeRequested,  // its tensor died, while other streams still used it
  kFreeCompleted,  // it can be handed out again; the request too, where both came at once
  kFree,           // legacy: both at once
  kSegmentAlloc,   // cudaMalloc
  kSegmentFree,
  kSegmentMap,  // expandable segments: physical pages come and go
  kSegmentUnmap,
  kOom,
  kSnapshot,
  kOther,
};
std::string_view Name(Action action);  // as the file spells it

struct Event {
  uint64_t addr = 0;  // for kOom: what the device reported free
  int64_t size = 0;   // as asked for (PyTorch 2.x); some versions wrote the block's size
  StackId stack{};
  uint16_t stream = 0;   // position in Snapshot::streams
  uint16_t context = 0;  // position in Snapshot::contexts
  Action action = Action::kOther;
  bool operator==(const Event&) const = default;
};

class EventTable {
 public:
  void Reserve(size_t events);
  void Add(const Event& event, uint64_t time_us);
  // Changes an event. REQUIRES: at < count().
  void Set(size_t at, const Event& event);
  void SetTime(size_t at, uint64_t time_us) { times_.Set(at, time_us); }

  size_t count() const { return numbers_.size(); }
  // Valid until the next change.
  const Event& operator[](size_t at) const { return distinct_[numbers_[at]]; }
  // One an event, in microseconds, ascending in sound files; 0 where the file has none.
  const TimeColumn& times() const { return times_; }
  // Every event that there is, or was before it was changed.
  std::span<const Event> distinct() const { return distinct_.values(); }

 private:
  std::vector<uint32_t> numbers_;
  TimeColumn times_;
  struct Whole {
    static size_t Hash(const Event& event);
    static bool Same(const Event& a, const Event& b) { return a == b; }
  };
  DistinctValues<Event, Whole> distinct_{1024};
};

}  // namespace headroom::observe
