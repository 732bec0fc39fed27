// SPDX-License-Identifier: Apache-2.0
//
// Constants and rules are those of c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.11.0; the names of
// its functions stand in the comments.
#include "predict/caching_allocator.h"

#include <algorithm>
#include <vector>

namespace headroom::predict {
namespace {

constexpr int64_t kMinBlockSize = 512;               // kMinBlockSize: every size is a multiple
constexpr int64_t kSmallSize = int64_t{1} << 20;     // kSmallSize: up to here, the small pool
constexpr int64_t kSmallBuffer = int64_t{2} << 20;   // kSmallBuffer: a small segment or page
constexpr int64_t kLargeBuffer = int64_t{20} << 20;  // kLargeBuffer: segment of 1..10 MiB requests
constexpr int64_t kMinLargeAlloc = int64_t{10} << 20;  // kMinLargeAlloc: from here, own segments
constexpr int64_t kRoundLarge = int64_t{2} << 20;      // kRoundLarge: and their unit
// Addresses as the driver gives them, read off traces; see DeviceAddresses.
constexpr int64_t kAddressRange = int64_t{32} << 20;
constexpr int64_t kKernelModules = int64_t{8} << 20;
constexpr int64_t kCublasHandle = int64_t{64} << 20;

// The handle of a request of zero bytes, which PyTorch answers with a null pointer.
constexpr int32_t kNothing = INT32_MAX;

constexpr int64_t RoundUpTo(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

CachingAllocator::CachingAllocator(const AllocatorOptions& options, std::optional<Bytes> limit)
    : options_(options), limit_(limit ? limit->count() : INT64_MAX) {}

int64_t CachingAllocator::MaxSplitSize() const {
  return options_.max_split_size.count() < 0 ? INT64_MAX : options_.max_split_size.count();
}

std::optional<AllocatorModel::Allocation> CachingAllocator::Alloc(Bytes request) {
  if (request.count() == 0) return Allocation{Handle(kNothing), Bytes(0)};
  const int64_t size = RoundRequest(request, options_).count();
  const bool small = size <= kSmallSize;
  ++allocations_;
  int32_t index = TakeFree(pools_[stream_][small ? 0 : 1], size);
  if (index < 0) index = TakeOrMakeRoom(size, small);
  if (index < 0) return std::nullopt;
  if (ShouldSplit(blocks_[index], size)) {
    const int32_t rest = blocks_.Split(index, size);
    PoolOf(blocks_[rest]).Insert(blocks_[rest], rest);
  }
  blocks_[index].live = true;
  return Allocation{Handle(static_cast<uint32_t>(index)), Bytes(blocks_[index].size)};
}

void CachingAllocator::Free(Handle handle) {
  const int32_t index = static_cast<int32_t>(handle);
  if (index == kNothing) return;
  HEADROOM_CHECK(blocks_[index].live, "a block freed twice");
  blocks_[index].live = false;
  blocks_[index].free_since = allocations_;
  MergeNeighbour(index, blocks_[index].previous);
  MergeNeighbour(index, blocks_[index].next);
  PoolOf(blocks_[index]).Insert(blocks_[index], index);
}

// try_merge_blocks.
void CachingAllocator::MergeNeighbour(int32_t index, int32_t other) {
  if (other < 0 || blocks_[other].live || blocks_[other].mapped != blocks_[index].mapped) return;
  TakeOut(other);
  blocks_.Absorb(index, other);
}

// get_free_block: best fit. A block of max_split_size or more serves only requests of that size,
// and those only if it wastes less than max_non_split_rounding_mb (default kLargeBuffer).
int32_t CachingAllocator::TakeFree(FreeBlocks& pool, int64_t size) {
  const FreeBlocks::Place place = BestFit(pool, size);
  if (place.block < 0) return -1;
  const Block& block = blocks_[place.block];
  if (size < MaxSplitSize() && block.size >= MaxSplitSize()) return -1;
  if (size >= MaxSplitSize() && block.size >= size + kLargeBuffer) return -1;
  pool.Erase(place);
  return place.block;
}

// DeviceCachingAllocator::malloc after a miss: collect garbage, then take from the device, then
// release what suffices, then release everything cached, and only then fail.
int32_t CachingAllocator::TakeOrMakeRoom(int64_t size, bool small) {
  if (limit_ != INT64_MAX && options_.garbage_collection_threshold > 0) CollectGarbage(size);
  int32_t index = TakeFromDevice(size, small);
  if (index < 0 && options_.max_split_size.count() >= 0) {
    ReleaseOversize(size);
    index = TakeFromDevice(size, small);
  }
  if (index < 0) {
    EmptyCache();
    index = TakeFromDevice(size, small);
  }
  return index;
}

void CachingAllocator::EmptyCache() {
  for (auto& of_stream : pools_) {
    for (FreeBlocks& pool : of_stream) {
      for (const int32_t index : pool.Blocks()) GiveBack(index);
    }
  }
}

// garbage_collect_cached_blocks: unsplit blocks older than the average go until usage is back under
// the threshold.
void CachingAllocator::CollectGarbage(int64_t wanted) {
  const double allowed = options_.garbage_collection_threshold * static_cast<double>(limit_);
  const int64_t target = reserved_ + wanted - static_cast<int64_t>(allowed);
  if (target <= 0) return;
  int64_t reclaimed = 0;
  while (reclaimed < target) {
    std::vector<int32_t> whole;
    int64_t total_age = 0;
    for (const int32_t index : pools_[stream_][1].Blocks()) {
      if (!blocks_[index].IsWholeSegment()) continue;
      whole.push_back(index);
      total_age += allocations_ - blocks_[index].free_since;
    }
    if (whole.empty()) return;
    const int64_t average = total_age / static_cast<int64_t>(whole.size());
    bool freed = false;
    for (const int32_t index : whole) {
      if (reclaimed >= target) break;
      if (allocations_ - blocks_[index].free_since < average) continue;
      reclaimed += blocks_[index].size;
      freed = true;
      GiveBack(index);
    }
    if (!freed) return;
  }
}

// release_available_cached_blocks: the smallest oversize block that suffices, else the largest ones
// until they do.
void CachingAllocator::ReleaseOversize(int64_t wanted) {
  const int64_t key = std::max(wanted, MaxSplitSize());
  const int32_t fitting = pools_[stream_][1].BestFit(key).block;
  if (fitting >= 0) {
    GiveBack(fitting);
    return;
  }
  std::vector<int32_t> blocks = pools_[stream_][1].Blocks();
  int64_t released = 0;
  for (auto index = blocks.rbegin(); index != blocks.rend() && released < key; ++index) {
    if (blocks_[*index].size < MaxSplitSize()) break;
    released += blocks_[*index].size;
    GiveBack(*index);
  }
}

uint64_t DeviceAddresses::Take(int64_t size) {
  for (auto range = ranges_.rbegin(); range != ranges_.rend(); ++range) {
    if (range->left >= size) return TakeFrom(*range, size);
  }
  if (kernels_loaded_ && window_.left >= size) return TakeFrom(window_, size);
  const int64_t length = RoundUpTo(size, kAddressRange);
  const bool upper = !kernels_loaded_ && turn_++ % 2 == 0 && length == kAddressRange;
  uint64_t& lowest = upper ? lowest_upper_ : lowest_;
  lowest -= static_cast<uint64_t>(length);
  ranges_.push_back({lowest, length});
  const uint64_t address = TakeFrom(ranges_.back(), size);
  if (ranges_.back().left == 0) ranges_.pop_back();
  return address;
}

void DeviceAddresses::KernelsLoaded() {
  Take(kKernelModules);
  kernels_loaded_ = true;
}

void DeviceAddresses::CublasHandleCreated() {
  Take(kKernelModules);
  Take(kCublasHandle);
}

uint64_t DeviceAddresses::TakeFrom(Range& range, int64_t size) {
  const uint64_t address = range.next;
  range.next += static_cast<uint64_t>(size);
  range.left -= size;
  return address;
}

// alloc_block with get_allocation_size.
int32_t NativeAllocator::TakeFromDevice(int64_t size, bool small) {
  const int64_t segment = small                   ? kSmallBuffer
                          : size < kMinLargeAlloc ? kLargeBuffer
                                                  : RoundUpTo(size, kRoundLarge);
  if (!WithinLimit(segment)) return -1;
  const int32_t index = blocks_.New();
  Block& block = blocks_[index];
  block.size = segment;
  block.address = addresses_.Take(segment);
  block.small = small;
  block.stream = stream_;
  block.free_since = allocations_;
  reserved_ += segment;
  return index;
}

// release_block: only a segment without a live block can go.
void NativeAllocator::GiveBack(int32_t index) {
  const Block& block = blocks_[index];
  if (!block.IsWholeSegment()) return;
  PoolOf(block).Erase(block);
  reserved_ -= block.size;
  blocks_.Drop(index);
}

// should_split.
bool NativeAllocator::ShouldSplit(const Block& block, int64_t size) const {
  const int64_t remaining = block.size - size;
  if (block.small) return remaining >= kMinBlockSize;
  return size < MaxSplitSize() && remaining > kSmallSize;
}

ExpandableAllocator::ExpandableAllocator(const AllocatorOptions& options,
                                         std::optional<Bytes> limit)
    : CachingAllocator(options, limit) {
  // One range of addresses a pool, larger than any device, with nothing behind it yet.
  for (const int pool : {0, 1}) {
    const int32_t index = blocks_.New();
    Block& block = blocks_[index];
    block.address = static_cast<uint64_t>(pool + 1) << 56;
    block.size = int64_t{1} << 55;
    block.small = pool == 0;
    block.mapped = false;
    unmapped_[pool].insert({block.address, index});
  }
}

// get_free_block with expandable segments: a block counts as large as it could grow, so that the
// end of the range is kept for requests that fit nowhere else.
FreeBlocks::Place ExpandableAllocator::BestFit(const FreeBlocks& pool, int64_t size) {
  return pool.BestFit(size, [this](int32_t index) {
    const int32_t next = blocks_[index].next;
    return blocks_[index].size + (next >= 0 && !blocks_[next].mapped ? blocks_[next].size : 0);
  });
}

bool ExpandableAllocator::ShouldSplit(const Block& block, int64_t size) const {
  return block.size - size >= kMinBlockSize;
}

// Unmapped blocks stand in a set of their own, by address.
void ExpandableAllocator::TakeOut(int32_t index) {
  const Block& block = blocks_[index];
  if (block.mapped) return CachingAllocator::TakeOut(index);
  unmapped_[block.small ? 0 : 1].erase({block.address, index});
}

// find_expandable_block: the lowest unmapped block, with the free block before it and what follows,
// that has room.
int32_t ExpandableAllocator::FindRun(int64_t size, bool small) {
  for (const auto& [address, unmapped] : unmapped_[small ? 0 : 1]) {
    int32_t first = unmapped;
    const int32_t before = blocks_[unmapped].previous;
    if (before >= 0 && !blocks_[before].live) first = before;
    int64_t room = 0;
    for (int32_t at = first; at >= 0 && !blocks_[at].live && room < size; at = blocks_[at].next) {
      room += blocks_[at].size;
    }
    if (room >= size) return first;
  }
  return -1;
}

// try_allocate_expandable_block.
int32_t ExpandableAllocator::TakeFromDevice(int64_t size, bool small) {
  int32_t candidate = FindRun(size, small);
  if (candidate < 0) return -1;
  if (!blocks_[candidate].mapped && !Map(candidate, std::min(blocks_[candidate].size, size)))
    return -1;
  while (blocks_[candidate].size < size) {
    const int32_t next = blocks_[candidate].next;
    const int64_t missing = size - blocks_[candidate].size;
    if (!Map(next, std::min(missing, blocks_[next].size))) return -1;
    candidate = next;
  }
  PoolOf(blocks_[candidate]).Erase(blocks_[candidate]);
  return candidate;
}

// map_block.
bool ExpandableAllocator::Map(int32_t index, int64_t size) {
  const bool small = blocks_[index].small;
  const int64_t pages = RoundUpTo(size, small ? kSmallBuffer : kLargeBuffer);
  if (!WithinLimit(pages)) return false;
  auto& unmapped = unmapped_[small ? 0 : 1];
  unmapped.erase({blocks_[index].address, index});
  if (blocks_[index].size > pages) {
    const int32_t rest = blocks_.Split(index, pages);
    unmapped.insert({blocks_[rest].address, rest});
  }
  blocks_[index].mapped = true;
  blocks_[index].free_since = allocations_;
  reserved_ += pages;
  MergeNeighbour(index, blocks_[index].previous);
  MergeNeighbour(index, blocks_[index].next);
  PoolOf(blocks_[index]).Insert(blocks_[index], index);
  return true;
}

// unmap_block: the whole pages inside the free block; what is left on either side stays free.
void ExpandableAllocator::GiveBack(int32_t index) {
  const bool small = blocks_[index].small;
  const auto page = static_cast<uint64_t>(small ? kSmallBuffer : kLargeBuffer);
  const uint64_t base = static_cast<uint64_t>(small ? 1 : 2) << 56;
  const uint64_t begin = blocks_[index].address - base;
  const uint64_t end = begin + static_cast<uint64_t>(blocks_[index].size);
  const uint64_t first = (begin + page - 1) / page * page;
  const uint64_t last = end / page * page;
  if (first >= last) return;
  PoolOf(blocks_[index]).Erase(blocks_[index]);
  int32_t middle = index;
  if (first > begin) {
    middle = blocks_.Split(index, static_cast<int64_t>(first - begin));
    PoolOf(blocks_[index]).Insert(blocks_[index], index);
  }
  if (end > last) {
    const int32_t tail = blocks_.Split(middle, static_cast<int64_t>(last - first));
    PoolOf(blocks_[tail]).Insert(blocks_[tail], tail);
  }
  blocks_[middle].mapped = false;
  reserved_ -= static_cast<int64_t>(last - first);
  MergeNeighbour(middle, blocks_[middle].previous);
  MergeNeighbour(middle, blocks_[middle].next);
  unmapped_[small ? 0 : 1].insert({blocks_[middle].address, middle});
}

}  // namespace headroom::predict
