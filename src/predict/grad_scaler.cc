// SPDX-License-Identifier: Apache-2.0
//
// torch/amp/grad_scaler.py, PyTorch 2.11.0.
#include "predict/grad_scaler.h"

#include "predict/ops.h"

namespace headroom::predict {

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
  if (enabled_ && optimizer.is_fused()) {
    const Scoped component(runtime_.component, Component::kTemporaries);
    const Scoped no_grad(runtime_.grad_enabled, false);
    sum = AddScalar(found_inf_);
  }
  optimizer.Step();
}

}  // namespace headroom::predict
