// SPDX-License-Identifier: Apache-2.0
//
// FitBudget: the cheapest way to make the same steps in less memory.
//
//   recompute           none, cheap (norms and activation functions), block (each layer again)
//   loss_chunk_rows     fewer rows of logits at a time
//   micro-batch         half the batch, twice the gradient_accumulation_steps
//
// None of them changes what a step computes, so that nobody has to be asked; other optimizers and
// precisions do, and are named only when nothing else fits.
//
// Rounding is another matter. To the bit the same are recomputation, and on the CPU chunks of the
// loss where gradients are summed in float32; micro-batches draw other dropout masks and sum in
// another order, as chunks on a GPU do. With TrainOptions.deterministic only the former are taken.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "engine/data/batches.h"
#include "engine/train_options.h"
#include "model/config.h"

namespace headroom::engine {

struct BudgetPlan {
  TrainOptions options;
  Bytes arena;
  double cost = 0;                   // share of a step's time that the changes add, estimated
  std::vector<std::string> changes;  // "recompute block", …; none: as asked
};

struct BudgetAnswer {
  std::optional<BudgetPlan> cheapest;  // that fits
  BudgetPlan smallest;                 // of all that were planned
  // What would change the numbers and the bytes that it would need: "--optim adamw_bnb_8bit".
  std::vector<std::pair<std::string, Bytes>> other;
  // With TrainOptions.deterministic, where that does not fit: the cheapest that would fit without
  // it, or else the smallest.
  std::optional<BudgetPlan> otherwise;
};

Result<BudgetAnswer> FitBudget(const ModelConfig& config, const TrainOptions& options,
                               const std::vector<BatchShape>& shapes, bool evaluates, Bytes budget);

}  // namespace headroom::engine
