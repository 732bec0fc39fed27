// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's caching allocator, natively and with expandable segments. See allocator.h.
//
// Both keep freed blocks in two pools (requests up to 1 MiB, and larger ones), hand out the
// smallest free block that fits, and merge free neighbours. They differ in where new memory comes
// from: the native one takes separate segments, the expandable one maps pages at the end of one
// long range.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "predict/allocator.h"
#include "predict/block_table.h"

namespace headroom::predict {

class CachingAllocator : public AllocatorModel {
 public:
  std::optional<Allocation> Alloc(Bytes request) final;
  void Free(Handle handle) final;
  void EmptyCache() final;
  Bytes reserved() const final { return Bytes(reserved_); }

 protected:
  CachingAllocator(const AllocatorOptions& options, std::optional<Bytes> limit);
  CachingAllocator(const CachingAllocator&) = default;

  template <typename Model>
  static std::unique_ptr<AllocatorModel> CopyOf(const Model& model, Bytes limit) {
    auto copy = std::make_unique<Model>(model);
    copy->limit_ = limit.count();
    return copy;
  }

  // A free block of at least `size` made of memory new to the allocator, in no pool; -1 when the
  // device has no more.
  virtual int32_t TakeFromDevice(int64_t size, bool small) = 0;
  // Gives what it can of the free block `index` back to the device.
  virtual void GiveBack(int32_t index) = 0;
  // The free block of `pool` for a request of `size`, if any.
  virtual FreeBlocks::Place BestFit(const FreeBlocks& pool, int64_t size) {
    return pool.BestFit(size);
  }
  // Whether `block`, chosen for a request of `size`, is cut to size.
  virtual bool ShouldSplit(const Block& block, int64_t size) const = 0;

  bool WithinLimit(int64_t more) const { return reserved_ + more <= limit_; }
  FreeBlocks& PoolOf(const Block& block) { return pools_[block.stream][block.small ? 0 : 1]; }
  // Merges a free neighbour of the same kind (mapped or not) into `index`.
  void MergeNeighbour(int32_t index, int32_t other);
  // Takes the free block `index` out of wherever free blocks of its kind stand.
  virtual void TakeOut(int32_t index) { PoolOf(blocks_[index]).Erase(blocks_[index]); }
  int64_t MaxSplitSize() const;

  const AllocatorOptions options_;
  int64_t limit_;  // INT64_MAX: none
  int64_t reserved_ = 0;
  int64_t allocations_ = 0;
  BlockTable blocks_;
  static constexpr int kStreams = 4;
  uint8_t stream_ = 0;
  FreeBlocks pools_[kStreams][2];  // small, large

 private:
  int32_t TakeFree(FreeBlocks& pool, int64_t size);
  int32_t TakeOrMakeRoom(int64_t size, bool small);
  void CollectGarbage(int64_t wanted);
  void ReleaseOversize(int64_t wanted);
};

// The addresses cudaMalloc gives. Only their order matters here: it breaks ties between free blocks
// of equal size, and with them which block is split and which is handed out whole.
//
// The driver (read off traces of 580.159 with CUDA 13.0 on an H200) takes virtual ranges in units
// of 32 MiB, each below the last, and fills what a segment leaves of its range with later, smaller
// segments, the newest range first. While a model is loaded the ranges come about in turn from two
// regions, one above the other. Above both lies a window of the context: once kernels are loaded,
// new segments fill what is free of it, upwards, before new ranges are taken. Kernels and cuBLAS
// handles take addresses in between. Where the regions lie depends on the process, so that two runs
// of one script can differ by a few MiB; docs/accuracy.md has the spread.
class DeviceAddresses {
 public:
  uint64_t Take(int64_t size);
  void KernelsLoaded();
  void CublasHandleCreated();

 private:
  struct Range {
    uint64_t next;  // the first free address
    int64_t left;   // bytes from there
  };
  static uint64_t TakeFrom(Range& range, int64_t size);

  Range window_{uint64_t{1} << 47, int64_t{488} << 20};
  bool kernels_loaded_ = false;
  int turn_ = 0;  // counts the ranges taken from either region while loading
  uint64_t lowest_upper_ = uint64_t{1} << 46;
  uint64_t lowest_ = uint64_t{1} << 45;
  std::vector<Range> ranges_;
};

class NativeAllocator final : public CachingAllocator {
 public:
  NativeAllocator(const AllocatorOptions& options, std::optional<Bytes> limit)
      : CachingAllocator(options, limit) {}

  std::unique_ptr<AllocatorModel> CopyUnder(Bytes limit) const override {
    return CopyOf(*this, limit);
  }
  void UseStream(int stream) override { stream_ = static_cast<uint8_t>(stream); }
  void KernelsLoaded() override { addresses_.KernelsLoaded(); }
  void CublasHandleCreated() override { addresses_.CublasHandleCreated(); }

 private:
  int32_t TakeFromDevice(int64_t size, bool small) override;
  void GiveBack(int32_t index) override;
  bool ShouldSplit(const Block& block, int64_t size) const override;

  DeviceAddresses addresses_;
};

class ExpandableAllocator final : public CachingAllocator {
 public:
  ExpandableAllocator(const AllocatorOptions& options, std::optional<Bytes> limit);

  std::unique_ptr<AllocatorModel> CopyUnder(Bytes limit) const override {
    return CopyOf(*this, limit);
  }

 private:
  int32_t TakeFromDevice(int64_t size, bool small) override;
  void GiveBack(int32_t index) override;
  FreeBlocks::Place BestFit(const FreeBlocks& pool, int64_t size) override;
  bool ShouldSplit(const Block& block, int64_t size) const override;
  void TakeOut(int32_t index) override;

  // The lowest run of free and unmapped neighbours that holds `size`; never -1: the range is larger
  // than any device.
  int32_t FindRun(int64_t size, bool small);
  // Maps the pages that cover the first `size` bytes of the unmapped block `index` and merges it
  // with free neighbours; false at the limit.
  bool Map(int32_t index, int64_t size);

  std::set<std::pair<uint64_t, int32_t>> unmapped_[2];  // by address
};

}  // namespace headroom::predict
