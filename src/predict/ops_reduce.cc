// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <vector>

#include "predict/autograd.h"
#include "predict/cuda_reduce.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

Shape ReducedShape(const Shape& shape, std::span<const int> dims, bool keepdim) {
  Shape reduced;
  for (int dim = 0; dim < shape.rank(); ++dim) {
    const bool gone = std::find(dims.begin(), dims.end(), dim) != dims.end();
    if (!gone) reduced.Append(shape[dim]);
    if (gone && keepdim) reduced.Append(1);
  }
  return reduced;
}

// Output and scratch of one reduction kernel; sums of 16-bit values accumulate in fp32.
Tensor Reduce(const char* name, const Tensor& x, std::span<const int> dims, bool keepdim,
              DType dtype) {
  Runtime& runtime = x.runtime();
  const OpScope op(runtime, name);
  Tensor out = Empty(runtime, ReducedShape(x.shape(), dims, keepdim), dtype);
  const int64_t accumulator = IsHalf(dtype) ? 4 : ElementSize(dtype);
  const ReductionScratch scratch = PlanReduction(x, dims, accumulator, runtime.platform().gpu);
  if (scratch.buffer > 0) {
    const Ref<Storage> buffer = runtime.Scratch(scratch.buffer);
    const Ref<Storage> semaphores = runtime.Scratch(scratch.semaphores);
  }
  ReportNormalization(name, {x}, {out}, 1);
  return out;
}

std::vector<int> Wrapped(std::span<const int> dims, int rank) {
  std::vector<int> wrapped;
  for (const int dim : dims) wrapped.push_back(dim < 0 ? dim + rank : dim);
  return wrapped;
}

std::vector<int> AllDims(const Tensor& x) {
  std::vector<int> dims(static_cast<size_t>(x.rank()));
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

// The gradient of a reduction seen in the shape of its input: sum_backward.
Tensor ExpandGradient(const Tensor& grad, const Shape& shape, std::span<const int> dims,
                      bool keepdim) {
  Tensor expanded = grad;
  if (!keepdim) {
    for (const int dim : dims) expanded = Unsqueeze(expanded, dim);
  }
  return Expand(expanded, shape);
}

}  // namespace

Tensor Sum(const Tensor& x, std::span<const int> over, bool keepdim) {
  const std::vector<int> dims = Wrapped(over, x.rank());
  GradRecorder record(x.runtime(), "SumBackward1", {x});
  const Shape shape = x.shape();
  const bool integral = !IsFloatingPoint(x.dtype());
  Tensor out = Reduce("aten::sum", x, dims, keepdim, integral ? DType::kInt64 : x.dtype());
  return record.Finish(std::move(out), [shape, dims, keepdim](Grads& grads) -> Grads {
    return {ExpandGradient(grads[0], shape, dims, keepdim)};
  });
}

Tensor SumAll(const Tensor& x) { return Sum(x, AllDims(x), false); }

Tensor Mean(const Tensor& x, int over, bool keepdim) {
  const std::vector<int> dims = Wrapped(std::span(&over, 1), x.rank());
  GradRecorder record(x.runtime(), "MeanBackward1", {x});
  const Shape shape = x.shape();
  return record.Finish(Reduce("aten::mean", x, dims, keepdim, x.dtype()),
                       [shape, dims, keepdim](Grads& grads) -> Grads {
                         // mean_backward: sum_backward(...) / n
                         return {DivScalar(ExpandGradient(grads[0], shape, dims, keepdim))};
                       });
}

Tensor SumTo(const Tensor& grad, const Shape& shape) {
  const int leading = grad.rank() - shape.rank();
  std::vector<int> dims;
  for (int dim = 0; dim < leading; ++dim) dims.push_back(dim);
  for (int dim = leading; dim < grad.rank(); ++dim) {
    if (shape[dim - leading] == 1 && grad.size(dim) != 1) dims.push_back(dim);
  }
  Tensor sum = dims.empty() ? grad : Reduce("aten::sum", grad, dims, true, grad.dtype());
  return leading > 0 ? View(sum, shape) : sum;
}

}  // namespace headroom::predict
