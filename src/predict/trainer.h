// SPDX-License-Identifier: Apache-2.0
//
// The driver of a training run: Hugging Face's Trainer.train, step by step.
#pragma once

#include "base/result.h"
#include "model/recipe.h"
#include "predict/model.h"
#include "predict/runtime.h"

namespace headroom::predict {

// Plays Trainer.train: `recipe.steps` optimizer steps, with a mark in the ledger at each phase that
// hf_memory.jsonl records. The optimizer is created first, as Trainer does.
Status RunTrainer(Runtime& runtime, const Architecture& architecture, const ModelConfig& config,
                  const Recipe& recipe, const Weights& weights, Model& model);

}  // namespace headroom::predict
