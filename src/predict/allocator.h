// SPDX-License-Identifier: Apache-2.0
//
// AllocatorModel: what PyTorch's CUDA allocator would hand out and keep, without a GPU.
//
// A tensor asks for bytes; the allocator hands out a block that may be larger (rounding, blocks too
// small to split) and takes segments from the device as it needs them. Three models replay the same
// requests: the native caching allocator, expandable segments, and an ideal one that never wastes a
// byte; the difference between the first and the last is fragmentation.
//
//   native, large pool, segment of 20 MiB:   |  8 MiB live  | 4 free | 8 MiB live |
//   Alloc(4 MiB) -> the hole; Alloc(6 MiB) -> a new segment, reserved grows by 20 MiB
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "predict/allocator_options.h"

namespace headroom::predict {

class AllocatorModel {
 public:
  // Names a block until it is freed.
  enum class Handle : uint32_t {};
  struct Allocation {
    Handle handle{};
    Bytes bytes;  // what memory_allocated() counts: the block's size
  };

  virtual ~AllocatorModel() = default;

  // A block of at least `size` bytes, or nullopt when the device has no more to give, even after
  // the cached segments were given back. Size 0 is legal and holds nothing.
  virtual std::optional<Allocation> Alloc(Bytes size) = 0;
  // REQUIRES: `handle` came from Alloc and was not freed since.
  virtual void Free(Handle handle) = 0;
  // The stream that requests are made on from here: a freed block serves only the stream it was
  // taken for. Stream 0 is the current one of a plain run.
  virtual void UseStream(int /*stream*/) {}
  // torch.cuda.empty_cache(): gives back every segment (or page) without a live block.
  virtual void EmptyCache() = 0;
  // The driver and its libraries take memory of their own beside ours at these points, which moves
  // the addresses of later segments: the first kernels are loaded; a cuBLAS handle is created.
  virtual void KernelsLoaded() {}
  virtual void CublasHandleCreated() {}
  // This allocator as it is now, for which `limit` has always been the most that it may reserve.
  // REQUIRES: it never reserved more, and does not collect garbage by a limit.
  virtual std::unique_ptr<AllocatorModel> CopyUnder(Bytes limit) const = 0;
  // What the allocator holds of the device now.
  virtual Bytes reserved() const = 0;
};

// `limit`: the most that may be reserved; unset: no limit.
std::unique_ptr<AllocatorModel> MakeAllocator(const AllocatorOptions& options,
                                              std::optional<Bytes> limit);

// Rounds a request as getRoundedSize does: to 512 B, or to a power-of-two division.
Bytes RoundRequest(Bytes size, const AllocatorOptions& options);

}  // namespace headroom::predict
