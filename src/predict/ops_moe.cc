// SPDX-License-Identifier: Apache-2.0
//
// What mixtures of experts run: choosing, sorting, gathering rows and grouped products.
// PyTorch 2.11.0: aten/src/ATen/native/{Sorting.cpp,cuda/Sort.cpp,cuda/TensorTopK.cpp,
// cuda/Indexing.cu,cuda/GroupedBlas.cpp}, FunctionsManual.cpp, derivatives.yaml.
#include "predict/ops_moe.h"

#include <initializer_list>

#include "base/check.h"
#include "predict/autograd.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

constexpr int64_t kInt64 = 8;

// cub::AliasTemporaries: pieces are rounded to 256 B each, and 255 B are added to align the first.
int64_t CubTemporaries(std::initializer_list<int64_t> pieces) {
  int64_t total = 255;
  for (const int64_t piece : pieces) total += (piece + 255) / 256 * 256;
  return total;
}

// cub::DeviceRadixSort::SortPairs over `bits` of int64 keys, with int64 values, one-sweep: a
// histogram for each digit of 8 bits, the look-back state of each tile, a second buffer of keys and
// of values, and counters.
int64_t RadixSortScratch(int64_t n, int64_t bits) {
  constexpr int64_t kDigits = 256;
  constexpr int64_t kTile = 4608;  // 384 threads, 12 pairs of 16 B each
  const int64_t passes = (bits + 7) / 8;
  const int64_t tiles = (n + kTile - 1) / kTile;
  return CubTemporaries(
      {passes * kDigits * kInt64, tiles * kDigits * 4, n * kInt64, n * kInt64, passes * 4});
}

// The bits of the largest linear index, which is all that index_put sorts by
// (cuda::cub::get_num_bits).
int64_t NumBits(int64_t most) {
  int64_t bits = 1;
  while (bits < 63 && (most >> bits) != 0) ++bits;
  return bits;
}

// Sort.cpp: up to this length one block sorts in place; beyond, cub sorts the whole.
constexpr int64_t kSmallSort = 4096;

// index_put_with_sort_kernel: rows of `grad` accumulated where `indices` say.
Tensor AccumulateRows(const Tensor& grad, const Tensor& indices, const Shape& whole) {
  Runtime& runtime = grad.runtime();
  const OpScope op(runtime, "aten::_index_put_impl_");
  Tensor result = Zeros(runtime, whole, grad.dtype());
  const int64_t n = indices.numel();
  Ref<Storage> linear;
  {
    const Ref<Storage> wrapped = runtime.Scratch(n * kInt64);
    linear = runtime.Scratch(n * kInt64);
  }
  const Ref<Storage> sorted = runtime.Scratch(n * kInt64);
  const Ref<Storage> original = runtime.Scratch(n * kInt64);
  const Ref<Storage> range = runtime.Scratch(n * kInt64);
  const Ref<Storage> sort = runtime.Scratch(RadixSortScratch(n, NumBits(whole[0] - 1)));
  ReportMap("aten::_index_put_impl_", {grad, grad, indices}, {grad}, 1);
  return result;
}

// _grouped_mm's output: rows padded so that each starts at a multiple of 16 B.
Tensor GroupedProduct(Runtime& runtime, const Shape& shape, DType dtype) {
  const OpScope op(runtime, "aten::_grouped_mm");
  const int64_t alignment = 16 / ElementSize(dtype);
  Shape strides = ContiguousStrides(shape);
  const int64_t row = (shape[-1] + alignment - 1) / alignment * alignment;
  strides[-2] = row;
  if (shape.rank() == 3) strides[0] = row * shape[1];
  Tensor out = EmptyStrided(runtime, shape, strides, dtype);
  runtime.EnsureCublasWorkspace(Runtime::Gemm::kPlain);
  return out;
}

}  // namespace

TopKResult TopK(const Tensor& x, int64_t k) {
  GradRecorder record(x.runtime(), "TopkBackward0", {x});
  const OpScope op(x.runtime(), "aten::topk");
  Shape shape = x.shape();
  shape[-1] = k;
  TopKResult result;
  result.values = Empty(x.runtime(), shape, x.dtype());
  result.indices = Empty(x.runtime(), shape, DType::kInt64);
  ReportNormalization("aten::topk", {x}, {result.values, result.indices}, 1);
  const SavedTensor saved = record.SaveOutput(result.indices);
  const Shape whole = x.shape();
  result.values = record.Finish(std::move(result.values), [saved, whole](Grads& grads) -> Grads {
    // value_selecting_reduction_backward: zeros, scattered into.
    const Tensor indices = saved.Unpack();
    return {Zeros(grads[0].runtime(), whole, grads[0].dtype())};
  });
  return result;
}

Tensor DivInPlace(const Tensor& x, const Tensor& divisor) {
  GradRecorder record(x.runtime(), "DivBackward0", {x, divisor});
  const OpScope op(x.runtime(), "aten::div_");
  // The dividend as it was is kept where the divisor wants a gradient.
  SavedTensor saved_x;
  if (record.Needs(1)) {
    const Scoped no_grad(x.runtime().grad_enabled, false);
    saved_x = record.Save(CloneLike(x, x));
  }
  const SavedTensor saved_divisor = record.Save(divisor);
  ReportMap("aten::div_", {x, divisor}, {x});
  return record.Finish(Detach(x), [saved_x, saved_divisor](Grads& grads) -> Grads {
    const Tensor by = saved_divisor.Unpack();
    Tensor of_divisor;
    if (saved_x.defined()) {
      // div_tensor_other_grad: -grad * ((self / other) / other), the right factor first.
      const Tensor dividend = saved_x.Unpack();
      const Tensor quotient = Div(dividend, by);
      const Tensor again = Div(quotient, by);
      const Tensor negative = Neg(grads[0]);
      of_divisor = Mul(negative, again);
    }
    return {Div(grads[0], by), of_divisor};
  });
}

SortResult SortIndices(const Tensor& x) {
  HEADROOM_CHECK(x.rank() == 1 && x.dtype() == DType::kInt64, "sorting takes a list of int64");
  Runtime& runtime = x.runtime();
  const OpScope op(runtime, "aten::sort");
  SortResult result{Empty(runtime, x.shape(), DType::kInt64),
                    Empty(runtime, x.shape(), DType::kInt64)};
  ReportMap("aten::sort", {x}, {result.indices, result.indices});
  const Ref<Storage> range = runtime.Scratch(x.numel() * kInt64);
  if (x.numel() > kSmallSort) {
    const Ref<Storage> sort = runtime.Scratch(RadixSortScratch(x.numel(), 64));
  }
  return result;
}

Tensor GatherRows(const Tensor& x, const Tensor& indices) {
  GradRecorder record(x.runtime(), "IndexBackward0", {x});
  const SavedTensor saved = record.Save(indices);
  const OpScope op(x.runtime(), "aten::index");
  const Shape whole = x.shape();
  Shape shape = whole;
  shape[0] = indices.numel();
  Tensor out = Empty(x.runtime(), shape, x.dtype());
  ReportMap("aten::index", {indices, out}, {out});
  return record.Finish(std::move(out), [saved, whole](Grads& grads) -> Grads {
    return {AccumulateRows(grads[0], saved.Unpack(), whole)};
  });
}

Tensor MaskedFillInPlace(const Tensor& x, const Tensor& mask) {
  GradRecorder record(x.runtime(), "MaskedFillBackward0", {x});
  const SavedTensor saved = record.Save(mask);
  ReportMap("aten::masked_fill_", {x, mask}, {x});
  return record.Finish(
      Detach(x), [saved](Grads& grads) -> Grads { return {MaskedFill(grads[0], saved.Unpack())}; });
}

Tensor GroupedMm(const Tensor& rows, const Tensor& weight, const Tensor& offsets) {
  HEADROOM_CHECK(rows.size(-1) == weight.size(-1), "a grouped product of sizes that do not fit");
  Runtime& runtime = rows.runtime();
  const Tensor transposed = Transpose(weight, -2, -1);
  GradRecorder record(runtime, "GroupedMmBackward0", {rows, transposed});
  const SavedTensor saved_rows = record.SaveIf(record.Needs(1), rows);
  const SavedTensor saved_weight = record.SaveIf(record.Needs(0), transposed);
  const SavedTensor saved_offsets = record.Save(offsets);
  const Shape weight_shape = weight.shape();
  Tensor out = GroupedProduct(runtime, {rows.size(0), weight.size(1)}, rows.dtype());
  // Each row meets the weight of its own expert; every expert's weight is read.
  const double flops = 2 * static_cast<double>(out.numel()) * static_cast<double>(rows.size(-1));
  ReportContraction("aten::_grouped_mm", flops, {rows, weight}, {out});
  return record.Finish(std::move(out), [=](Grads& grads) -> Grads {
    const Tensor row_values = saved_rows.defined() ? saved_rows.Unpack() : Tensor();
    const Tensor weight_values = saved_weight.defined() ? saved_weight.Unpack() : Tensor();
    const Tensor offset_values = saved_offsets.Unpack();
    Runtime& of = grads[0].runtime();
    Tensor of_weight;
    // The weight was handed over transposed: its gradient is laid out the same way.
    if (row_values.defined()) {
      of_weight = Transpose(GroupedProduct(of, weight_shape, grads[0].dtype()), -2, -1);
      ReportContraction("aten::_grouped_mm", flops, {grads[0], row_values}, {of_weight});
    }
    Tensor of_rows;
    if (weight_values.defined()) {
      of_rows = GroupedProduct(of, {grads[0].size(0), weight_shape[2]}, grads[0].dtype());
      ReportContraction("aten::_grouped_mm", flops, {grads[0], weight_values}, {of_rows});
    }
    return {of_rows, of_weight};
  });
}

Tensor CountOffsets(const Tensor& counts) {
  Runtime& runtime = counts.runtime();
  const OpScope op(runtime, "aten::cumsum");
  const Tensor offsets = Empty(runtime, counts.shape(), DType::kInt32);
  // cub's scan: tile states of 16 B, 32 of them as padding and one for each 192 elements.
  const int64_t tiles = (counts.numel() + 191) / 192 + 32;
  const Ref<Storage> scan = runtime.Scratch(CubTemporaries({tiles * 16}));
  return offsets;
}

}  // namespace headroom::predict
