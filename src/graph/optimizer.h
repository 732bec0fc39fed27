// SPDX-License-Identifier: Apache-2.0
//
// The optimizer's part of a graph: its states, and the ops that update every parameter.
//
//   bytes per parameter    adamw, adam 8    adamw 8-bit 2 + 8/256    sgd 0, with momentum 4
#pragma once

#include <string_view>

#include "graph/graph.h"

namespace headroom::graph {

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  // bitsandbytes' block-wise states, of parameters of at least 4,096 elements that are no
  // embedding table (bitsandbytes 0.44: min_8bit_size; transformers 5.17's Trainer: embeddings).
  bool eight_bit = false;
  float weight_decay = 0;
  float momentum = 0;  // of kSgd
  // Of bfloat16 weights without float32 masters: engine/stochastic_rounding.h. Others round to
  // nearest.
  bool stochastic_rounding = true;
};

// TrainingArguments.optim's name for it: "adamw_torch", "adamw_bnb_8bit", "adam", "sgd".
std::string_view OptimName(const OptimizerOptions& options);

// Appends the states, the gradients' norm and the update. REQUIRES: AppendBackward ran.
void AppendOptimizer(Graph& graph, const OptimizerOptions& options);

}  // namespace headroom::graph
