// SPDX-License-Identifier: Apache-2.0
#include "predict/allocator.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "predict/caching_allocator.h"

namespace headroom::predict {
namespace {

// Never wastes a byte: allocated is what was asked, reserved the most that was ever live.
class IdealAllocator final : public AllocatorModel {
 public:
  explicit IdealAllocator(std::optional<Bytes> limit) : limit_(limit) {}

  std::optional<Allocation> Alloc(Bytes size) override {
    if (limit_ && live_ + size > *limit_) return std::nullopt;
    live_ += size;
    reserved_ = std::max(reserved_, live_);
    sizes_.push_back(size);
    return Allocation{Handle(static_cast<uint32_t>(sizes_.size() - 1)), size};
  }
  void Free(Handle handle) override { live_ -= sizes_[static_cast<size_t>(handle)]; }
  void EmptyCache() override { reserved_ = live_; }
  std::unique_ptr<AllocatorModel> CopyUnder(Bytes limit) const override {
    auto copy = std::make_unique<IdealAllocator>(*this);
    copy->limit_ = limit;
    return copy;
  }
  Bytes reserved() const override { return reserved_; }

 private:
  std::optional<Bytes> limit_;
  Bytes live_;
  Bytes reserved_;
  std::vector<Bytes> sizes_;
};

}  // namespace

// DeviceCachingAllocator::round_size, PyTorch 2.11.0.
Bytes RoundRequest(Bytes size, const AllocatorOptions& options) {
  constexpr int64_t kMinBlockSize = 512;
  if (size.count() < kMinBlockSize) return Bytes(kMinBlockSize);
  const int64_t divisions = options.roundup_power2_divisions;
  if (divisions > 1 && size.count() > kMinBlockSize * divisions) {
    // roundup_power2_next_division
    const uint64_t bytes = static_cast<uint64_t>(size.count());
    if (std::has_single_bit(bytes)) return size;
    const uint64_t step = std::bit_floor(bytes) / static_cast<uint64_t>(divisions);
    return Bytes(static_cast<int64_t>((bytes + step - 1) / step * step));
  }
  return RoundUp(size, Bytes(kMinBlockSize));
}

std::unique_ptr<AllocatorModel> MakeAllocator(const AllocatorOptions& options,
                                              std::optional<Bytes> limit) {
  switch (options.backend) {
    case AllocatorOptions::Backend::kNative:
      return std::make_unique<NativeAllocator>(options, limit);
    case AllocatorOptions::Backend::kExpandableSegments:
      return std::make_unique<ExpandableAllocator>(options, limit);
    case AllocatorOptions::Backend::kIdeal:
      return std::make_unique<IdealAllocator>(limit);
  }
  return nullptr;
}

}  // namespace headroom::predict
