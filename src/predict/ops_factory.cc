// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "predict/autograd.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

// empty_like with torch.preserve_format: the strides of a dense tensor; otherwise its dimensions in
// the order of their strides, packed (infer_dense_strides).
Shape PreservedStrides(const Tensor& x) {
  if (x.is_non_overlapping_and_dense()) return x.strides();
  std::array<int, Shape::kMaxRank> order{};
  for (int dim = 0; dim < x.rank(); ++dim) order[static_cast<size_t>(dim)] = x.rank() - 1 - dim;
  std::stable_sort(order.begin(), order.begin() + x.rank(), [&](int a, int b) {
    // Broadcast dimensions (stride 0) say nothing about the order and keep their place.
    if (x.strides()[a] == 0 || x.strides()[b] == 0) return false;
    return x.strides()[a] < x.strides()[b];
  });
  Shape strides = x.shape();
  int64_t stride = 1;
  for (int i = 0; i < x.rank(); ++i) {
    const int dim = order[static_cast<size_t>(i)];
    strides[dim] = stride;
    stride *= std::max<int64_t>(x.size(dim), 1);
  }
  return strides;
}

// An op of autocast's lists: `x` in `dtype`, through the cache where autocast caches.
Tensor CachedCast(const Tensor& x, DType dtype) {
  AutocastState& state = x.runtime().autocast;
  if (!x.defined() || x.dtype() == dtype || !IsFloatingPoint(x.dtype()) ||
      x.dtype() == DType::kFloat64) {
    return x;
  }
  // cached_cast, aten/src/ATen/autocast_mode.cpp, PyTorch 2.11.0.
  const bool cached = state.cache_enabled && dtype == state.dtype && x.dtype() == DType::kFloat32 &&
                      x.requires_grad() && x.is_leaf() && !x.is_view();
  if (!cached) return ToCopy(x, dtype);
  const auto [entry, added] = state.cache.try_emplace(x.impl(), Tensor());
  if (added) {
    Tensor copy = ToCopy(x, dtype);
    state.cache[x.impl()] = copy;
    return copy;
  }
  return entry->second;
}

}  // namespace

Tensor EmptyLike(const Tensor& x, DType dtype) {
  return EmptyStrided(x.runtime(), x.shape(), PreservedStrides(x), dtype);
}

Tensor EmptyLike(const Tensor& x) { return EmptyLike(x, x.dtype()); }

Tensor Zeros(Runtime& runtime, const Shape& shape, DType dtype) {
  const OpScope op(runtime, "aten::zeros");
  Tensor out = Empty(runtime, shape, dtype);
  ReportMap("aten::zeros", {}, {out});
  return out;
}

Tensor ZerosLike(const Tensor& x) {
  const OpScope op(x.runtime(), "aten::zeros_like");
  Tensor out = EmptyLike(x);
  ReportMap("aten::zeros_like", {}, {out});
  return out;
}

Tensor Arange(Runtime& runtime, int64_t count, DType dtype) {
  const OpScope op(runtime, "aten::arange");
  return Empty(runtime, {count}, dtype);
}

Tensor FromHost(Runtime& runtime, const Shape& shape, DType dtype) {
  const OpScope op(runtime, "aten::to");
  return Empty(runtime, shape, dtype);
}

Tensor ToCopy(const Tensor& x, DType dtype) {
  GradRecorder record(x.runtime(), "ToCopyBackward0", {x});
  const OpScope op(x.runtime(), "aten::_to_copy");
  const DType original = x.dtype();
  Tensor out = EmptyLike(x, dtype);
  ReportMap("aten::_to_copy", {x}, {out});
  return record.Finish(std::move(out),
                       [original](Grads& grads) -> Grads { return {To(grads[0], original)}; });
}

Tensor To(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : ToCopy(x, dtype); }

Tensor AutocastToLower(const Tensor& x) {
  if (!x.defined() || !x.runtime().autocast.enabled) return x;
  const Scoped kind(x.runtime().kind, Kind::kCast);
  return CachedCast(x, x.runtime().autocast.dtype);
}

Tensor AutocastToFloat(const Tensor& x) {
  if (!x.defined() || !x.runtime().autocast.enabled || !IsHalf(x.dtype())) return x;
  return CachedCast(x, DType::kFloat32);
}

}  // namespace headroom::predict
