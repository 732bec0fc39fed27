// SPDX-License-Identifier: Apache-2.0
//
// Operators that write into their first operand: autograd records a node, memory stays as it is.
// Backward formulas: tools/autograd/derivatives.yaml, PyTorch 2.11.0.
#include "predict/autograd.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

// The same memory under the node that wrote to it.
Tensor Written(const char* name, const Tensor& x) {
  ReportMap(name, {x}, {x});
  return Detach(x);
}

}  // namespace

Tensor MulScalarInPlace(const Tensor& x) {
  GradRecorder record(x.runtime(), "MulBackward0", {x});
  return record.Finish(Written("aten::mul_", x),
                       [](Grads& grads) -> Grads { return {MulScalar(grads[0])}; });
}

Tensor DivScalarInPlace(const Tensor& x) {
  GradRecorder record(x.runtime(), "DivBackward0", {x});
  return record.Finish(Written("aten::div_", x),
                       [](Grads& grads) -> Grads { return {DivScalar(grads[0])}; });
}

}  // namespace headroom::predict
