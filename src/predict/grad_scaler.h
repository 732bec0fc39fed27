// SPDX-License-Identifier: Apache-2.0
//
// GradScaler: torch.amp.GradScaler with one optimizer on one device.
//
// What it keeps (scale, growth tracker) appears at the first scaled loss. Trainer and the plain
// loop share it; unless enabled it does nothing.
#pragma once

#include "predict/optimizers.h"
#include "predict/runtime.h"
#include "predict/tensor.h"

namespace headroom::predict {

class GradScaler {
 public:
  GradScaler(Runtime& runtime, bool enabled) : runtime_(runtime), enabled_(enabled) {}

  bool enabled() const { return enabled_; }

  // scale(loss). REQUIRES: enabled().
  Tensor Scale(const Tensor& loss);
  // unscale_(optimizer)
  void Unscale();
  // step(optimizer): the fused forms get the sum of found_inf, the others read it on the host.
  void Step(Optimizer& optimizer);
  // update()
  void Update() { found_inf_ = Tensor(); }

 private:
  Runtime& runtime_;
  bool enabled_;
  Tensor scale_;
  Tensor growth_tracker_;
  Tensor found_inf_;
};

}  // namespace headroom::predict
