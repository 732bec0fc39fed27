// SPDX-License-Identifier: Apache-2.0
//
// KeptWeights: `outputs = block(...)` of the older modelling files. The loop's name `outputs` holds
// a layer's attention probabilities until the next layer's outputs take its place.
//
//   KeptWeights kept;
//   hidden = Checkpoint(kind, [slot = kept.slot(), &block](const Tensor& x) {
//     return KeptWeights::Keep(slot, block(x));
//   }, hidden);
#pragma once

#include <memory>

#include "predict/models/attention.h"
#include "predict/tensor.h"

namespace headroom::predict {

class KeptWeights {
 public:
  // For a layer's closure: once the loop's frame is gone (a recomputation) nothing is kept.
  using Slot = std::weak_ptr<Tensor>;

  Slot slot() const { return weights_; }

  static Tensor Keep(const Slot& slot, const AttentionOutput& outputs) {
    if (const std::shared_ptr<Tensor> weights = slot.lock()) *weights = outputs.weights;
    return outputs.states;
  }

 private:
  std::shared_ptr<Tensor> weights_ = std::make_shared<Tensor>();
};

}  // namespace headroom::predict
