// SPDX-License-Identifier: Apache-2.0
//
// aten/src/ATen/native/cuda/Blas.cpp and tools/autograd/derivatives.yaml, PyTorch 2.11.0.
#include "base/check.h"
#include "predict/autograd.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {

Tensor Baddbmm(const Tensor& given_self, const Tensor& left, const Tensor& right) {
  const Tensor b = AutocastToLower(right);
  const Tensor a = AutocastToLower(left);
  const Tensor self = AutocastToLower(given_self);
  HEADROOM_CHECK(!self.requires_grad(), "baddbmm's first operand wants no gradient");
  Runtime& runtime = a.runtime();
  GradRecorder record(runtime, "BaddbmmBackward0", {self, a, b});
  const SavedTensor saved_a = record.SaveIf(record.Needs(2), a);
  const SavedTensor saved_b = record.SaveIf(record.Needs(1), b);
  const OpScope op(runtime, "aten::baddbmm");
  Tensor out = Empty(runtime, {a.size(0), a.size(1), b.size(2)}, a.dtype());
  runtime.EnsureCublasWorkspace(Runtime::Gemm::kPlain);
  ReportProduct("aten::baddbmm", a, b, out);
  return record.Finish(std::move(out), [saved_a, saved_b](Grads& grads) -> Grads {
    const Tensor left_value = saved_a.defined() ? saved_a.Unpack() : Tensor();
    const Tensor right_value = saved_b.defined() ? saved_b.Unpack() : Tensor();
    // maybe_multiply by alpha.
    const auto scaled = [](const Tensor& product) { return MulScalar(product); };
    Tensor of_a;
    if (right_value.defined()) of_a = scaled(Bmm(grads[0], Transpose(right_value, 1, 2)));
    Tensor of_b;
    if (left_value.defined()) of_b = scaled(Bmm(Transpose(left_value, 1, 2), grads[0]));
    return {Tensor(), of_a, of_b};
  });
}

}  // namespace headroom::predict
