// SPDX-License-Identifier: Apache-2.0
//
// The driver of a plain PyTorch training loop: autocast, GradScaler, clipping, accumulation, with
// the names a loop keeps from one iteration to the next.
//
//   for i, (src, tgt) in enumerate(batches):
//       with torch.autocast("cuda", dtype=…):
//           o = model(src, tgt[:, :-1])
//           loss = crit(o.view(-1, o.size(-1)), tgt[:, 1:].reshape(-1)) / accum
//       scaler.scale(loss).backward()
//       if (i + 1) % accum == 0: unscale, clip, step, update, zero_grad
#pragma once

#include "base/result.h"
#include "model/recipe.h"
#include "predict/model.h"
#include "predict/runtime.h"

namespace headroom::predict {

// Plays `recipe.steps` optimizer steps, with a mark in the ledger at each phase that
// hf_memory.jsonl records. `model` is called with the source as input_ids and the decoder's inputs
// as labels, and returns logits alone.
Status RunTorchLoop(Runtime& runtime, const Recipe& recipe, const Weights& weights, Model& model);

}  // namespace headroom::predict
