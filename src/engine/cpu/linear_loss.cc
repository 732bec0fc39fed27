// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "engine/cpu/cpu_ops.h"
#include "engine/cpu/gemm.h"
#include "engine/cpu/operands.h"

namespace headroom::engine::cpu {
namespace {

// Rows [first, first + count) as a tensor of its own.
TensorView Rows(const TensorView& tensor, int64_t first, int64_t count) {
  return {Address(tensor, first, 0), tensor.dtype, Shape{count, tensor.cols()}, tensor.stride()};
}

}  // namespace

// The whole logits never exist: each chunk's are made, turned into their gradient and used up.
void RunLinearLoss(const OpCall& call) {
  const TensorView x = Operand(call.inputs, 0);
  const TensorView weight = Operand(call.inputs, 1);
  const TensorView bias = Operand(call.inputs, 2);
  const TensorView labels = Operand(call.inputs, 3);
  const TensorView dx = Operand(call.outputs, 1);
  const TensorView dweight = Operand(call.outputs, 2);
  const TensorView dbias = Operand(call.outputs, 3);
  const TensorView scratch = Operand(call.scratch, 0);
  const int64_t classes = call.attributes.transposed ? weight.cols() : weight.rows();
  HEADROOM_CHECK(scratch && scratch.cols() >= classes, "linear_loss without room for logits");
  const Matrix by_input =
      call.attributes.transposed ? Matrix::Of(weight) : Matrix::Of(weight).Transposed();
  const int64_t width = x.cols();
  for (int64_t row = 0; row < x.rows(); row += scratch.rows()) {
    const int64_t rows = std::min(scratch.rows(), x.rows() - row);
    const TensorView some = Rows(x, row, rows);
    TensorView logits = Rows(scratch, 0, rows);
    logits.shape = Shape{rows, classes};  // a GPU's plan has longer rows
    Gemm(rows, classes, width, Matrix::Of(some), by_input, Matrix::Of(logits),
         {.bias = bias ? &bias : nullptr});
    CrossEntropyRows(call, logits, labels, row, Operand(call.outputs, 0));
    if (!call.step.training) continue;
    if (dx) {
      Gemm(rows, width, classes, Matrix::Of(logits), by_input.Transposed(),
           Matrix::Of(Rows(dx, row, rows)), {.add = call.attributes.accumulate});
    }
    const bool add = row > 0 || call.step.micro_step > 0;
    if (dweight && call.attributes.transposed) {
      Gemm(width, classes, rows, Matrix::Of(some).Transposed(), Matrix::Of(logits),
           Matrix::Of(dweight), {.add = add});
    } else if (dweight) {
      Gemm(classes, width, rows, Matrix::Of(logits).Transposed(), Matrix::Of(some),
           Matrix::Of(dweight), {.add = add});
    }
    if (dbias) SumRows(logits, dbias, add);
  }
}

}  // namespace headroom::engine::cpu
