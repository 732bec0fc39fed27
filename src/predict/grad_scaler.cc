// SPDX-License-Identifier: Apache-2.0
//
// torch/amp/grad_scaler.py, PyTorch 2.11.0.
#include "predict/grad_scaler.h"

#include "predict/op_report.h"
#include "predict/ops.h"

namespace headroom::predict {
namespace {

// _amp_foreach_non_finite_check_and_unscale_ over all gradients.
void ReportUnscaling(Runtime& runtime, const std::vector<Tensor>& parameters) {
  if (!runtime.observed()) return;
  OpWork work;
  for (const Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    work.read += BytesOf(parameter.grad());
    work.flops += static_cast<double>(parameter.numel());
    work.dtype = parameter.grad().dtype();
  }
  work.written = work.read;
  runtime.ReportOp("aten::_amp_foreach_non_finite_check_and_unscale_", work);
}

}  // namespace

Tensor GradScaler::Scale(const Tensor& loss) {
  if (!scale_.defined()) {
    // _lazy_init_scale_growth_tracker
    const Scoped component(runtime_.component, Component::kOptimizer);
    scale_ = Empty(runtime_, {}, DType::kFloat32);
    growth_tracker_ = Empty(runtime_, {}, DType::kInt32);
  }
  return Mul(loss, scale_);
}

void GradScaler::Unscale() {
  if (!enabled_) return;
  const Scoped component(runtime_.component, Component::kTemporaries);
  const Scoped no_grad(runtime_.grad_enabled, false);
  // self._scale.double().reciprocal().float()
  Tensor inverse = ToCopy(scale_, DType::kFloat64);
  inverse = DivScalar(inverse);
  inverse = ToCopy(inverse, DType::kFloat32);
  const Tensor found_inf = Empty(runtime_, {}, DType::kFloat32);
  // _MultiDeviceReplicator copies both to the gradients' device.
  found_inf_ = Empty(runtime_, {}, DType::kFloat32);
  const Tensor inverse_copy = Empty(runtime_, {}, DType::kFloat32);
}

void GradScaler::Step(Optimizer& optimizer) {
  Tensor sum;
  if (enabled_) ReportUnscaling(runtime_, optimizer.parameters());
  if (enabled_ && optimizer.is_fused()) {
    const Scoped component(runtime_.component, Component::kTemporaries);
    const Scoped no_grad(runtime_.grad_enabled, false);
    sum = AddScalar(found_inf_);
  }
  optimizer.Step();
}

}  // namespace headroom::predict
