// SPDX-License-Identifier: Apache-2.0
//
// Tensor parallelism by transformers' tp_plan: what one rank of N runs is a model with an Nth of
// the attention heads and of the MLP's width. Embeddings and norms are whole on every rank; a head
// of its own is split by rows, and its logits are gathered.
#pragma once

#include "base/result.h"
#include "model/config.h"
#include "model/parameter_table.h"
#include "model/recipe.h"
#include "predict/wrapper.h"

namespace headroom::predict {

// The config that one rank runs. Fails where the class has no such plan or a size does not divide.
Result<ModelConfig> RankConfig(const ModelConfig& config, const Recipe& recipe);

// What training with some parameters as DTensors changes: the optimizer falls back to its loop over
// single tensors, which holds two temporaries the size of a parameter.
class TensorParallel final : public Wrapper {
 public:
  TensorParallel(Runtime& runtime, const Recipe& recipe, const Weights& weights)
      : runtime_(runtime), optim_(recipe.optim), weights_(weights) {}

  const std::vector<Tensor>& optimizer_parameters() const override { return weights_.parameters(); }
  void EndStep() override;

 private:
  Runtime& runtime_;
  Optim optim_;
  const Weights& weights_;
};

// caching_allocator_warmup: from_pretrained takes one block as large as all weights and gives it
// back, so that one segment serves the tensors that follow.
void WarmUp(Runtime& runtime, const ParameterTable& table, DType dtype);

// `table` of RankConfig with the rows of the head that one rank holds.
ParameterTable RankTable(const ParameterTable& table, const Recipe& recipe);

}  // namespace headroom::predict
