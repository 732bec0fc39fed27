// SPDX-License-Identifier: Apache-2.0
#include "predict/tensor.h"

#include <algorithm>
#include <array>

#include "predict/autograd.h"
#include "predict/runtime.h"

namespace headroom::predict {

Storage::Storage(Runtime& runtime, Bytes bytes) : Storage(runtime, bytes, Deferred{}) { Acquire(); }

Storage::~Storage() { Release(); }

void Storage::Acquire() {
  if (held_) return;
  const Runtime::DeviceBlock block = runtime_.AllocBlock(bytes_);
  handle_ = block.handle;
  block_ = block.id;
  held_ = true;
}

void Storage::Release() {
  if (held_) runtime_.FreeBlock({handle_, block_});
  held_ = false;
}

void Storage::Reclassify(Component component, Kind kind) {
  if (held_) runtime_.ledger().Reclassify(block_, component, kind);
}

TensorImpl::TensorImpl(Ref<Storage> bytes, DType type, const Shape& sizes, const Shape& steps)
    : storage(std::move(bytes)), shape(sizes), strides(steps), dtype(type) {}

TensorImpl::~TensorImpl() = default;

bool Tensor::is_contiguous() const {
  int64_t expected = 1;
  for (int dim = rank() - 1; dim >= 0; --dim) {
    if (size(dim) == 1) continue;
    if (strides()[dim] != expected) return false;
    expected *= size(dim);
  }
  return true;
}

bool Tensor::is_non_overlapping_and_dense() const {
  if (is_contiguous()) return true;
  std::array<int, Shape::kMaxRank> order{};
  int count = 0;
  for (int dim = 0; dim < rank(); ++dim) {
    if (size(dim) != 1) order[static_cast<size_t>(count++)] = dim;
  }
  std::sort(order.begin(), order.begin() + count,
            [&](int a, int b) { return strides()[a] < strides()[b]; });
  int64_t expected = 1;
  for (int i = 0; i < count; ++i) {
    const int dim = order[static_cast<size_t>(i)];
    if (strides()[dim] != expected) return false;
    expected *= size(dim);
  }
  return true;
}

Shape ContiguousStrides(const Shape& shape) {
  Shape strides = shape;
  int64_t stride = 1;
  for (int dim = shape.rank() - 1; dim >= 0; --dim) {
    strides[dim] = stride;
    stride *= std::max<int64_t>(shape[dim], 1);
  }
  return strides;
}

}  // namespace headroom::predict
