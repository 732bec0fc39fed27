// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/cpu_ops.h"
#include "engine/cpu/gemm.h"
#include "engine/cpu/operands.h"
#include "engine/cpu/parallel.h"

namespace headroom::engine::cpu {

void SumRows(const TensorView& x, const TensorView& out, bool add) {
  const int64_t columns = x.cols();
  const int64_t rows = x.rows();
  ParallelFor((columns + kColumnBlock - 1) / kColumnBlock, rows * kColumnBlock, [&](int64_t job) {
    const int64_t column = job * kColumnBlock;
    const int64_t n = std::min(kColumnBlock, columns - column);
    Chunk buffer;
    alignas(64) float total[kColumnBlock] = {};
    if (add) std::copy_n(Read(out, 0, column, n, buffer), n, total);
    for (int64_t start = 0; start < rows; start += kRowBlock) {
      alignas(64) float sum[kColumnBlock] = {};
      for (int64_t row = start; row < std::min(rows, start + kRowBlock); ++row) {
        Kernels().add(Read(x, row, column, n, buffer), sum, n, sum);
      }
      Kernels().add(total, sum, n, total);
    }
    Write(out, 0, column, n, total);
  });
}

// The weight as [K, M], whichever way it lies.
static Matrix WeightOf(const OpCall& call, const TensorView& weight) {
  const Matrix matrix = Matrix::Of(weight);
  return call.attributes.transposed ? matrix : matrix.Transposed();
}

void RunLinear(const OpCall& call) {
  const TensorView x = Operand(call.inputs, 0);
  const TensorView bias = Operand(call.inputs, 2);
  const TensorView y = Operand(call.outputs, 0);
  Gemm(x.rows(), y.cols(), x.cols(), Matrix::Of(x), WeightOf(call, Operand(call.inputs, 1)),
       Matrix::Of(y), {.add = call.attributes.accumulate, .bias = bias ? &bias : nullptr});
}

void RunLinearBackwardInput(const OpCall& call) {
  const TensorView dy = Operand(call.inputs, 0);
  const TensorView dx = Operand(call.outputs, 0);
  Gemm(dy.rows(), dx.cols(), dy.cols(), Matrix::Of(dy),
       WeightOf(call, Operand(call.inputs, 1)).Transposed(), Matrix::Of(dx),
       {.add = call.attributes.accumulate});
}

void RunLinearBackwardWeight(const OpCall& call) {
  const TensorView dy = Operand(call.inputs, 0);
  const TensorView x = Operand(call.inputs, 1);
  const TensorView dweight = Operand(call.outputs, 0);
  const TensorView dbias = Operand(call.outputs, 1);
  const bool add = AddsToWeight(call);
  if (call.attributes.transposed) {
    Gemm(x.cols(), dy.cols(), x.rows(), Matrix::Of(x).Transposed(), Matrix::Of(dy),
         Matrix::Of(dweight), {.add = add});
  } else {
    Gemm(dy.cols(), x.cols(), x.rows(), Matrix::Of(dy).Transposed(), Matrix::Of(x),
         Matrix::Of(dweight), {.add = add});
  }
  if (dbias) SumRows(dy, dbias, add);
}

}  // namespace headroom::engine::cpu
