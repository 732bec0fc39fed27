// SPDX-License-Identifier: Apache-2.0
//
// The driver of generation: model.generate, greedy, sampling or with beams, prefill and decode.
//
//   ids = tokenizer(prompt, return_tensors="pt").input_ids.to("cuda")
//   model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=…, num_beams=…)
#pragma once

#include <cstdint>

#include "base/result.h"
#include "model/recipe.h"
#include "predict/model.h"
#include "predict/runtime.h"

namespace headroom::predict {

// Decoding steps that are all played; of longer generations the later ones are alike, and only
// about kSampledSteps of them are.
inline constexpr int64_t kPlayedSteps = 64;
inline constexpr int64_t kSampledSteps = 32;
// Steps passed over between two played ones: 0 when every step is played.
constexpr int64_t StepsBetween(int64_t max_new_tokens) {
  const int64_t stride = (max_new_tokens - kPlayedSteps) / kSampledSteps;
  return stride > 1 ? stride - 1 : 0;
}

// Plays model.generate under torch.no_grad(), every sequence to its full length. Marks in the
// ledger: load (what came before), prefill (the first token is chosen), decode (the last one is).
Status RunGenerate(Runtime& runtime, const Architecture& architecture, const ModelConfig& config,
                   const Recipe& recipe, Model& model);

// Fails on what generate cannot do, or is not modelled.
Status CheckGenerate(const Architecture& architecture, const ModelConfig& config,
                     const Recipe& recipe);

}  // namespace headroom::predict
