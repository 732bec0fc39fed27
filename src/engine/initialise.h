// SPDX-License-Identifier: Apache-2.0
//
// Weights of a model that is trained from nothing: transformers' _init_weights (5.17).
//
//   matrices and tables   normal(0, initializer_range, or init_std); the row of padding 0
//   biases                0
//   weights of norms      1
//   GPT-2's c_proj        normal(0, initializer_range / sqrt(2 * layers))
#pragma once

#include <cstdint>

#include "engine/executor.h"
#include "engine/models/model_graph.h"
#include "model/config.h"

namespace headroom::engine {

// Fills masters and weights. The values follow from `seed` and the order of the parameters alone.
void InitialiseWeights(const ModelConfig& config, const Executor& executor, uint64_t seed);

// Fills the constants of the model whose graph `executor` runs: rotary tables, sinusoids.
void FillConstants(const ModelGraph& model, const Executor& executor);

// Copies a master, once it is filled, into the weight that forward reads.
void CopyMasters(const Executor& executor);

}  // namespace headroom::engine
