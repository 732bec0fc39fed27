// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/{bloom,falcon,mpt}/modeling_*.py.
#include "predict/models/alibi.h"

#include <algorithm>
#include <bit>

#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

// torch.pow of a number on the device and whole exponents.
Tensor PowersOf(const Tensor& base, const Tensor& exponents) {
  const Tensor both[] = {base, exponents};
  return Elementwise("aten::pow", both, DType::kFloat32);
}

int64_t PowerOfTwoUpTo(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)));
}
int64_t PowerOfTwoFrom(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
}

}  // namespace

Tensor BuildAlibi(const Tensor& attention_mask, int64_t heads, DType dtype, DType slopes_dtype) {
  Runtime& runtime = attention_mask.runtime();
  const Scoped kind(runtime.kind, Kind::kPosition);
  const int64_t batch = attention_mask.size(0);
  const int64_t sequence = attention_mask.size(1);
  const int64_t closest = PowerOfTwoUpTo(heads);
  const Tensor base = Full(runtime, {}, DType::kFloat32);
  const Tensor powers = Arange(runtime, closest, DType::kInt32);
  Tensor slopes = PowersOf(base, powers);
  Tensor extra_base;
  Tensor extra_powers;
  if (closest != heads) {
    extra_base = Full(runtime, {}, DType::kFloat32);
    extra_powers = Arange(runtime, std::min(closest, heads - closest), DType::kInt32);
    const Tensor extra_slopes = PowersOf(extra_base, extra_powers);
    const Tensor both[] = {slopes, extra_slopes};
    slopes = Cat(both, 0);
  }
  Tensor distances = CumSum(attention_mask);
  distances = AddScalar(distances);
  distances = Mul(distances, attention_mask);
  distances = Unsqueeze(distances, 1);
  Tensor alibi;
  {
    const Tensor cast_slopes = To(Unsqueeze(slopes, -1), slopes_dtype);
    alibi = Mul(cast_slopes, distances);
  }
  return To(Reshape(alibi, {batch * heads, 1, sequence}), dtype);
}

Tensor BuildMptAlibi(Runtime& runtime, int64_t heads, int64_t sequence) {
  const Scoped kind(runtime.kind, Kind::kPosition);
  const int64_t rounded = PowerOfTwoFrom(heads);
  Tensor alibi = View(Arange(runtime, sequence, DType::kInt32), {1, 1, 1, sequence});
  Tensor base;
  {
    const Tensor steps = Arange(runtime, rounded);
    base = ToCopy(steps, DType::kFloat32);
  }
  base = MulScalar(base);
  Tensor slopes;
  {
    // 1.0 / torch.pow(2, base): the 2 becomes a tensor, and the division a reciprocal and a
    // product.
    const Tensor powers = Elementwise("aten::pow", std::span(&base, 1), DType::kFloat32);
    { const Tensor two = Full(runtime, {}, DType::kInt64); }
    const Tensor inverse = Elementwise("aten::reciprocal", std::span(&powers, 1), DType::kFloat32);
    slopes = MulScalar(inverse);
  }
  slopes = View(slopes, {1, rounded, 1, 1});
  if (rounded != heads) {
    const Tensor halves[] = {Slice(slopes, 1, 0, rounded / 2), Slice(slopes, 1, 0, rounded / 2)};
    slopes = Slice(Cat(halves, 1), 1, 0, heads);
  }
  alibi = Mul(alibi, slopes);
  return Squeeze(alibi, 0);
}

}  // namespace headroom::predict
