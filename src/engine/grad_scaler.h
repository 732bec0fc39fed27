// SPDX-License-Identifier: Apache-2.0
//
// GradScaler: the factor that keeps float16 gradients from vanishing, with the defaults of
// torch.amp.GradScaler (PyTorch 2.11, torch/amp/grad_scaler.py).
#pragma once

#include <cstdint>

namespace headroom::engine {

struct GradScaler {
  float scale = 65536.0F;
  float growth_factor = 2.0F;
  float backoff_factor = 0.5F;
  int32_t growth_interval = 2000;
  int32_t growth_tracker = 0;  // steps since the last change

  // After a step: halves the scale when the gradients were not all finite (that step changed
  // nothing), doubles it after growth_interval steps that were.
  void Update(bool overflow) {
    if (overflow) {
      scale *= backoff_factor;
      growth_tracker = 0;
    } else if (++growth_tracker == growth_interval) {
      scale *= growth_factor;
      growth_tracker = 0;
    }
  }

  bool operator==(const GradScaler&) const = default;
};

}  // namespace headroom::engine
