// SPDX-License-Identifier: Apache-2.0
//
// AllocationTrace: what a run asks of its allocator, in order, without the run.
//
// Under a cap on reserved memory a run asks for the same, in the same order, until the allocator
// fails: no op looks at free memory. So what it does under any cap is found by replaying the trace
// alone, in milliseconds, whatever the model.
//
//   trace     alloc 12 MiB (#0) | alloc 2 MiB (#1) | free #0 | alloc 19 MiB (#2)
//   cap 31    segments of 12 and of 20 MiB are over it: fails at #1
//   cap 40    32 are reserved and #2 does not fit beside them; #0's goes back: 20 + 20 do
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "predict/allocator_options.h"

namespace headroom {

class AllocationTrace {
 public:
  AllocationTrace() = default;
  // Of a run under these settings, which replays keep.
  explicit AllocationTrace(const AllocatorOptions& options) : options_(options) {}

  // What happens beside requests.
  enum class Mark : uint8_t {
    kEmptyCache,
    kKernelsLoaded,
    kCublasHandleCreated,
    kStream,  // the default stream is current from here; the next marks are streams 1, 2, …
  };

  // ---- Recording ----

  // The next allocation; they are numbered from 0.
  void Alloc(Bytes bytes);
  // REQUIRES: allocation `number` is live.
  void Free(uint32_t number) { entries_.push_back(-1 - static_cast<int64_t>(number)); }
  void Note(Mark mark);
  // What is reserved since the last allocation: tells replays where a cap begins to matter.
  void NoteReserved(Bytes reserved);

  // ---- Replaying ----

  // Whether the run completes when the allocator may reserve `cap` and no more. As PyTorch's does,
  // it gives cached segments back and tries again before it fails.
  bool Completes(Bytes cap) const { return CompletesUnder(options_, cap); }
  // The same of a run under other settings.
  bool CompletesUnder(const AllocatorOptions& options, Bytes cap) const;

  // What a run under `options` and `cap` needs; `marked` are allocations, by number, as far as it
  // goes.
  struct Usage {
    bool completes = false;  // the rest is of what comes before the failure
    Bytes peak_allocated;
    Bytes peak_reserved;
    Bytes marked_at_peak;  // of what is alive when the allocated bytes first reach their peak
  };
  Usage UsageUnder(const AllocatorOptions& options, Bytes cap,
                   const std::vector<bool>& marked) const;

  // The smallest cap that completes, by bisection to the allocator's unit of 2 MiB.
  // REQUIRES: `completes` does, and is at most what the run reserved. `fails` is known not to: at
  // most the peak allocated.
  Bytes SmallestCap(Bytes fails, Bytes completes) const;

  size_t allocations() const { return allocations_; }

 private:
  struct Replay;
  // An allocation after which more was reserved than ever before.
  struct High {
    size_t entry;
    Bytes reserved;
  };

  // Plays the entries before `end`; false where the allocator fails. `see(entry, block)` is told
  // of each allocation (with its block) and each other entry (without) once it is played.
  template <typename See>
  bool Play(Replay& replay, size_t end, const See& see) const;
  bool Play(Replay& replay, size_t end) const;
  // Up to this entry a replay under `cap` is what it is without: 0 when that is not known.
  size_t SameUntil(Bytes cap) const;

  AllocatorOptions options_;
  // Bytes asked for; a freed number as -1 - number; or a mark.
  std::vector<int64_t> entries_;
  size_t allocations_ = 0;
  std::vector<High> highs_;
};

}  // namespace headroom
