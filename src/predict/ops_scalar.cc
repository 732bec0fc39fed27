// SPDX-License-Identifier: Apache-2.0
//
// Element-wise ops against a number that PyTorch 2.11.0 handles as a tensor or a bound:
// aten/src/ATen/native/TensorCompare.cpp, tools/autograd/derivatives.yaml.
#include "predict/autograd.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

// where.ScalarOther: the number becomes a tensor on the device first.
Tensor SelectOrNumber(const Tensor& condition, const Tensor& x) {
  const OpScope op(x.runtime(), "aten::where");
  const Tensor number = Empty(x.runtime(), {}, DType::kFloat32);
  const Tensor inputs[] = {condition, x};
  return Elementwise("aten::where", inputs, x.dtype());
}

}  // namespace

Tensor WhereScalar(const Tensor& condition, const Tensor& x) {
  GradRecorder record(x.runtime(), "WhereBackward0", {x});
  const SavedTensor saved = record.Save(condition);
  return record.Finish(SelectOrNumber(condition, x), [saved](Grads& grads) -> Grads {
    return {SelectOrNumber(saved.Unpack(), grads[0])};
  });
}

Tensor Clamp(const Tensor& x) {
  GradRecorder record(x.runtime(), "ClampBackward1", {x});
  const SavedTensor saved = record.Save(x);
  const OpScope op(x.runtime(), "aten::clamp");
  Tensor out = EmptyLike(x);
  ReportMap("aten::clamp", {x}, {out});
  return record.Finish(std::move(out), [saved](Grads& grads) -> Grads {
    // clamp_backward: where((self >= min).logical_and_(self <= max), grad, 0)
    const Tensor value = saved.Unpack();
    const Tensor inside = CompareScalar(value);
    { const Tensor below = CompareScalar(value); }
    return {SelectOrNumber(inside, grads[0])};
  });
}

}  // namespace headroom::predict
