// SPDX-License-Identifier: Apache-2.0
#include "predict/allocation_trace.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "predict/allocator.h"

namespace headroom {
namespace {

using predict::AllocatorModel;

// Segments and pages are multiples of 2 MiB (kSmallBuffer, kLargeBuffer, kRoundLarge of
// c10/core/AllocatorConfig.h and c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.11.0).
constexpr Bytes kUnit = MiB(2);

// Marks stand below every freed number.
constexpr int64_t kFirstMark = std::numeric_limits<int64_t>::min();
constexpr int64_t kLastMark = kFirstMark + 16;

void Apply(AllocatorModel& allocator, AllocationTrace::Mark mark) {
  switch (mark) {
    case AllocationTrace::Mark::kEmptyCache:
      return allocator.EmptyCache();
    case AllocationTrace::Mark::kKernelsLoaded:
      return allocator.KernelsLoaded();
    case AllocationTrace::Mark::kCublasHandleCreated:
      return allocator.CublasHandleCreated();
    case AllocationTrace::Mark::kStream:
      break;
  }
  allocator.UseStream(static_cast<int>(mark) - static_cast<int>(AllocationTrace::Mark::kStream));
}

// Units that hold `size`.
int64_t Units(Bytes size) { return (size.count() + kUnit.count() - 1) / kUnit.count(); }

}  // namespace

void AllocationTrace::Alloc(Bytes bytes) {
  entries_.push_back(bytes.count());
  ++allocations_;
}

void AllocationTrace::Note(Mark mark) {
  entries_.push_back(kFirstMark + static_cast<int64_t>(mark));
}

void AllocationTrace::NoteReserved(Bytes reserved) {
  if (highs_.empty() || reserved > highs_.back().reserved) {
    highs_.push_back({entries_.size() - 1, reserved});
  }
}

struct AllocationTrace::Replay {
  std::unique_ptr<AllocatorModel> allocator;
  std::vector<AllocatorModel::Handle> handles;
  size_t next = 0;  // entry
};

template <typename See>
bool AllocationTrace::Play(Replay& replay, size_t end, const See& see) const {
  AllocatorModel& allocator = *replay.allocator;
  replay.handles.reserve(allocations_);
  for (; replay.next < end; ++replay.next) {
    const int64_t entry = entries_[replay.next];
    std::optional<AllocatorModel::Allocation> got;
    if (entry >= 0) {
      got = allocator.Alloc(Bytes(entry));
      if (!got) return false;
      replay.handles.push_back(got->handle);
    } else if (entry <= kLastMark) {
      Apply(allocator, static_cast<Mark>(entry - kFirstMark));
    } else {
      allocator.Free(replay.handles[static_cast<size_t>(-1 - entry)]);
    }
    see(entry, got);
  }
  return true;
}

bool AllocationTrace::Play(Replay& replay, size_t end) const {
  return Play(replay, end, [](int64_t, const auto&) {});
}

size_t AllocationTrace::SameUntil(Bytes cap) const {
  // Garbage is collected by the cap before it is reached.
  if (options_.garbage_collection_threshold > 0) return 0;
  const auto over = std::ranges::upper_bound(highs_, cap, {}, &High::reserved);
  return over == highs_.end() ? 0 : over->entry;
}

bool AllocationTrace::CompletesUnder(const AllocatorOptions& options, Bytes cap) const {
  Replay replay{predict::MakeAllocator(options, cap), {}};
  return Play(replay, entries_.size());
}

AllocationTrace::Usage AllocationTrace::UsageUnder(const AllocatorOptions& options, Bytes cap,
                                                   const std::vector<bool>& marked) const {
  Usage usage;
  Replay replay{predict::MakeAllocator(options, cap), {}};
  std::vector<Bytes> sizes;
  sizes.reserve(allocations_);
  Bytes live;
  Bytes live_marked;
  const auto change = [&](size_t number, Bytes bytes) {
    live += bytes;
    if (number < marked.size() && marked[number]) live_marked += bytes;
  };
  usage.completes = Play(replay, entries_.size(), [&](int64_t entry, const auto& block) {
    if (block) {
      sizes.push_back(block->bytes);
      change(sizes.size() - 1, block->bytes);
      usage.peak_reserved = std::max(usage.peak_reserved, replay.allocator->reserved());
    } else if (entry > kLastMark) {
      const auto number = static_cast<size_t>(-1 - entry);
      change(number, -sizes[number]);
    }
    if (live > usage.peak_allocated) {
      usage.peak_allocated = live;
      usage.marked_at_peak = live_marked;
    }
  });
  return usage;
}

Bytes AllocationTrace::SmallestCap(Bytes fails, Bytes completes) const {
  // What is reserved is a multiple of the unit, so that only such caps differ. All that lie above
  // `low` begin alike.
  int64_t low = Units(fails) - 1;
  int64_t high = Units(completes);
  Replay begin{predict::MakeAllocator(options_, std::nullopt), {}};
  while (high - low > 1) {
    Play(begin, SameUntil(Bytes(low * kUnit.count())));
    const int64_t middle = low + (high - low) / 2;
    const Bytes cap(middle * kUnit.count());
    Replay replay{begin.allocator->CopyUnder(cap), begin.handles, begin.next};
    (Play(replay, entries_.size()) ? high : low) = middle;
  }
  return Bytes(high * kUnit.count());
}

}  // namespace headroom
