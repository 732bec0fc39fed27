// SPDX-License-Identifier: Apache-2.0
#include "predict/allocation_trace.h"

#include <limits>
#include <memory>

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

bool AllocationTrace::Completes(Bytes cap) const {
  const std::unique_ptr<AllocatorModel> allocator = predict::MakeAllocator(options_, cap);
  std::vector<AllocatorModel::Handle> handles;
  handles.reserve(allocations_);
  for (const int64_t entry : entries_) {
    if (entry >= 0) {
      const std::optional<AllocatorModel::Allocation> got = allocator->Alloc(Bytes(entry));
      if (!got) return false;
      handles.push_back(got->handle);
    } else if (entry <= kLastMark) {
      Apply(*allocator, static_cast<Mark>(entry - kFirstMark));
    } else {
      allocator->Free(handles[static_cast<size_t>(-1 - entry)]);
    }
  }
  return true;
}

Bytes AllocationTrace::SmallestCap(Bytes fails, Bytes completes) const {
  // What is reserved is a multiple of the unit, so that only such caps differ.
  int64_t low = Units(fails) - 1;
  int64_t high = Units(completes);
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (Completes(Bytes(middle * kUnit.count())) ? high : low) = middle;
  }
  return Bytes(high * kUnit.count());
}

}  // namespace headroom
