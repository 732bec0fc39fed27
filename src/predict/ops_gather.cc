// SPDX-License-Identifier: Apache-2.0
//
// gather, and repeat along the first dimension. Backward formulas:
// torch/csrc/autograd/FunctionsManual.cpp (repeat_backward) and
// aten/src/ATen/native/TensorAdvancedIndexing.cpp (gather_backward), PyTorch 2.11.0.
#include "base/check.h"
#include "predict/autograd.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {

Tensor Gather(const Tensor& x, const Tensor& index) {
  Runtime& runtime = x.runtime();
  GradRecorder record(runtime, "GatherBackward0", {x});
  // gather_backward reads only the sizes of x, yet the generated code saves it.
  const SavedTensor saved_x = record.Save(x);
  const SavedTensor saved_index = record.Save(index);
  const OpScope op(runtime, "aten::gather");
  Tensor out = Empty(runtime, index.shape(), x.dtype());
  ReportMap("aten::gather", {index, out}, {out});
  return record.Finish(std::move(out), [saved_x, saved_index](Grads& grads) -> Grads {
    const Tensor indices = saved_index.Unpack();
    const Tensor input = saved_x.Unpack();
    Tensor whole = Zeros(input.runtime(), input.shape(), grads[0].dtype());
    ReportMap("aten::scatter_add_", {grads[0], grads[0], indices}, {grads[0]});
    return {whole};
  });
}

Tensor RepeatFirst(const Tensor& x, int64_t repeats) {
  Runtime& runtime = x.runtime();
  GradRecorder record(runtime, "RepeatBackward0", {x});
  const OpScope op(runtime, "aten::repeat");
  const Shape before = x.shape();
  Shape shape = before;
  shape[0] *= repeats;
  Tensor out = Empty(runtime, shape, x.dtype());
  ReportMap("aten::repeat", {x}, {out});
  return record.Finish(std::move(out), [before, repeats](Grads& grads) -> Grads {
    if (repeats == 1) return {grads[0]};
    Shape apart = {repeats};
    for (int dim = 0; dim < before.rank(); ++dim) apart.Append(before[dim]);
    constexpr int kFirst[] = {0};
    return {Sum(Reshape(grads[0], apart), kFirst, false)};
  });
}

}  // namespace headroom::predict
