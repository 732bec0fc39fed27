// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "engine/cuda/cuda_ops.h"
#include "engine/cuda/gemm_library.h"
#include "engine/cuda/workspace.h"

namespace headroom::engine::cuda {
namespace {

GemmProblem Problem(const OpCall& call, const Launch& launch, const GemmMatrix& left,
                    const GemmMatrix& right, const TensorView& out, bool add) {
  return {.left = left,
          .right = right,
          .out = out,
          .add = add,
          .tf32 = launch.tf32 && left.rows.dtype == DType::kFloat32,
          .workspace = WorkspaceOf(call),
          .workspace_bytes = call.scratch.back().shape.NumElements()};
}

void Multiply(const OpCall& call, const Launch& launch, const GemmMatrix& left,
              const GemmMatrix& right, const TensorView& out, bool add,
              const TensorView& bias = {}) {
  GemmProblem problem = Problem(call, launch, left, right, out, add);
  problem.bias = bias;
  launch.gemm->Multiply(problem, launch.stream);
}

// The weight as [K, M], whichever way it lies.
GemmMatrix WeightOf(const OpCall& call, const TensorView& weight) {
  return {weight, !call.attributes.transposed};
}

// Rows [first, first + count), of so many columns.
TensorView Rows(const TensorView& tensor, int64_t first, int64_t count, int64_t columns) {
  return {tensor.data + first * tensor.stride() * ElementSize(tensor.dtype), tensor.dtype,
          Shape{count, columns}, tensor.stride()};
}

float* SumRoom(const OpCall& call) { return reinterpret_cast<float*>(WorkspaceOf(call)); }

}  // namespace

void RunLinear(const OpCall& call, const Launch& launch) {
  Multiply(call, launch, {call.inputs[0]}, WeightOf(call, call.inputs[1]), call.outputs[0],
           call.attributes.accumulate, Operand(call.inputs, 2));
}

void RunLinearBackwardInput(const OpCall& call, const Launch& launch) {
  Multiply(call, launch, {call.inputs[0]}, WeightOf(call, call.inputs[1]).Turned(), call.outputs[0],
           call.attributes.accumulate);
}

void RunLinearBackwardWeight(const OpCall& call, const Launch& launch) {
  const TensorView dy = call.inputs[0];
  const TensorView x = call.inputs[1];
  const TensorView dbias = Operand(call.outputs, 1);
  const bool add = AddsToWeight(call);
  const bool transposed = call.attributes.transposed;
  GemmProblem problem = transposed ? Problem(call, launch, {x, true}, {dy}, call.outputs[0], add)
                                   : Problem(call, launch, {dy, true}, {x}, call.outputs[0], add);
  if (dbias && !add && dbias.dtype == call.outputs[0].dtype) {
    problem.sums = dbias;
    problem.sums_of = transposed ? SumsOf::kRight : SumsOf::kLeft;
    if (launch.gemm->MultiplyWithSums(problem, launch.stream)) return;
    problem.sums_of = SumsOf::kNone;
  }
  launch.gemm->Multiply(problem, launch.stream);
  if (dbias) SumRows(launch, dy, dbias, 0, add, SumRoom(call));
}

namespace {

// Columns [first, first + count).
TensorView Columns(const TensorView& tensor, int64_t first, int64_t count) {
  return {tensor.data + first * ElementSize(tensor.dtype), tensor.dtype,
          Shape{tensor.rows(), count}, tensor.stride()};
}

// The products of some classes, [first, first + count).
class Classes {
 public:
  Classes(const OpCall& call, const Launch& launch, int64_t first, int64_t count)
      : call_(call), launch_(launch), first_(first), count_(count) {}

  void Logits(const TensorView& x, const TensorView& logits) const {
    const TensorView bias = Operand(call_.inputs, 2);
    Multiply(call_, launch_, {x}, WeightOf(call_, Part(call_.inputs[1])),
             Columns(logits, first_, count_), false,
             bias ? Columns(bias, first_, count_) : TensorView{});
  }
  void InputGradient(const TensorView& logits, const TensorView& dx, bool add) const {
    Multiply(call_, launch_, {Columns(logits, first_, count_)},
             WeightOf(call_, Part(call_.inputs[1])).Turned(), dx, add);
  }
  void WeightGradient(const TensorView& x, const TensorView& logits, const TensorView& dweight,
                      bool add) const {
    const GemmMatrix gradient{Columns(logits, first_, count_)};
    if (call_.attributes.transposed) {
      Multiply(call_, launch_, {x, true}, gradient, Part(dweight), add);
    } else {
      Multiply(call_, launch_, gradient.Turned(), {x}, Part(dweight), add);
    }
  }

 private:
  TensorView Part(const TensorView& weight) const {
    if (call_.attributes.transposed) return Columns(weight, first_, count_);
    return Rows(weight, first_, count_, weight.cols());
  }

  const OpCall& call_;
  const Launch& launch_;
  int64_t first_;
  int64_t count_;
};

// Tensor cores want a multiple of 8: what is left of a vocabulary like GPT-2's 50257 is a product
// of its own.
std::vector<Classes> SplitClasses(const OpCall& call, const Launch& launch, int64_t classes) {
  const int64_t whole = classes / 8 * 8;
  if (whole == classes || whole < 1024) return {Classes(call, launch, 0, classes)};
  return {Classes(call, launch, 0, whole), Classes(call, launch, whole, classes - whole)};
}

}  // namespace

// As on the CPU: each chunk's logits are made, turned into their gradient and used up.
void RunLinearLoss(const OpCall& call, const Launch& launch) {
  const TensorView x = call.inputs[0];
  const TensorView weight = call.inputs[1];
  const TensorView dx = Operand(call.outputs, 1);
  const TensorView dweight = Operand(call.outputs, 2);
  const TensorView dbias = Operand(call.outputs, 3);
  const TensorView scratch = call.scratch[0];
  const int64_t classes = call.attributes.transposed ? weight.cols() : weight.rows();
  const std::vector<Classes> parts = SplitClasses(call, launch, classes);
  for (int64_t row = 0; row < x.rows(); row += scratch.rows()) {
    const int64_t rows = std::min(scratch.rows(), x.rows() - row);
    const TensorView some = Rows(x, row, rows, x.cols());
    const TensorView logits = Rows(scratch, 0, rows, classes);
    for (const Classes& part : parts) part.Logits(some, logits);
    CrossEntropyRows(call, launch, logits, call.inputs[3], row, call.outputs[0], SumRoom(call));
    if (!call.step.training) continue;
    const bool add = row > 0 || call.step.micro_step > 0;
    bool adds_input = call.attributes.accumulate;
    for (const Classes& part : parts) {
      if (dx) part.InputGradient(logits, Rows(dx, row, rows, x.cols()), adds_input);
      if (dweight) part.WeightGradient(some, logits, dweight, add);
      adds_input = true;
    }
    if (dbias) SumRows(launch, logits, dbias, 0, add, SumRoom(call));
  }
}

}  // namespace headroom::engine::cuda
