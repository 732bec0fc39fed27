// SPDX-License-Identifier: Apache-2.0
#include "engine/budget.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/format.h"
#include "engine/step_set.h"

namespace headroom::engine {
namespace {

using graph::Recompute;

// Shares of a step's time, measured on the CPU with BERT- and GPT-2-like models (docs/engine.md).
double CostOf(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return 0;
    case Recompute::kCheap:
      return 0.03;
    case Recompute::kBlock:
      return 0.30;
  }
  return 0;
}
constexpr double kChunkCost = 0.005;      // each time that the chunks are a quarter as large
constexpr double kMicroBatchCost = 0.02;  // each time that the batch is halved
constexpr std::array<int64_t, 3> kChunkRows = {0, 256, 64};

std::vector<BudgetPlan> Candidates(const TrainOptions& options) {
  std::vector<BudgetPlan> plans;
  int halvings = 0;
  for (int64_t batch = options.per_device_train_batch_size; batch >= 1; batch /= 2, ++halvings) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kCheap, Recompute::kBlock}) {
      if (recompute < options.recompute) continue;
      for (size_t chunk = 0; chunk < kChunkRows.size(); ++chunk) {
        BudgetPlan plan;
        plan.options = options;
        plan.options.per_device_train_batch_size = batch;
        plan.options.gradient_accumulation_steps *= int64_t{1} << halvings;
        plan.options.recompute = recompute;
        if (kChunkRows[chunk] > 0) plan.options.loss_chunk_rows = kChunkRows[chunk];
        plan.cost = CostOf(recompute) - CostOf(options.recompute) +
                    kChunkCost * static_cast<double>(chunk) + kMicroBatchCost * halvings;
        if (recompute != options.recompute) {
          plan.changes.push_back(Format("--recompute {}", Name(recompute)));
        }
        if (chunk > 0) plan.changes.push_back(Format("--loss-chunk-rows {}", kChunkRows[chunk]));
        if (halvings > 0) {
          plan.changes.push_back(
              Format("--batch {} --accum {}", batch, plan.options.gradient_accumulation_steps));
        }
        plans.push_back(std::move(plan));
      }
    }
    if (batch % 2 != 0) break;
  }
  std::stable_sort(plans.begin(), plans.end(),
                   [](const BudgetPlan& a, const BudgetPlan& b) { return a.cost < b.cost; });
  return plans;
}

Result<Bytes> ArenaOf(const ModelConfig& config, const TrainOptions& options,
                      const std::vector<BatchShape>& shapes, bool evaluates) {
  // The largest shape decides.
  HEADROOM_ASSIGN_OR_RETURN(const StepSet steps,
                            StepSet::Plan(config, options, {shapes.back()}, evaluates));
  return steps.arena_size();
}

}  // namespace

Result<BudgetAnswer> FitBudget(const ModelConfig& config, const TrainOptions& options,
                               const std::vector<BatchShape>& shapes, bool evaluates,
                               Bytes budget) {
  BudgetAnswer answer;
  for (BudgetPlan& plan : Candidates(options)) {
    HEADROOM_ASSIGN_OR_RETURN(plan.arena, ArenaOf(config, plan.options, shapes, evaluates));
    if (answer.smallest.arena.count() == 0 || plan.arena < answer.smallest.arena) {
      answer.smallest = plan;
    }
    if (plan.arena > budget) continue;
    answer.cheapest = std::move(plan);
    return answer;
  }
  const auto also = [&](const std::string& flag, TrainOptions other) -> Status {
    HEADROOM_ASSIGN_OR_RETURN(const Bytes arena, ArenaOf(config, other, shapes, evaluates));
    const Bytes best = answer.other.empty() ? answer.smallest.arena : answer.other.back().second;
    if (arena < best) answer.other.emplace_back(flag, arena);
    return {};
  };
  TrainOptions other = answer.smallest.options;
  if (other.optimizer.kind == graph::OptimizerKind::kAdamW && !other.optimizer.eight_bit) {
    other.optimizer.eight_bit = true;
    HEADROOM_RETURN_IF_ERROR(also("--optim adamw_bnb_8bit", other));
  }
  if (other.precision == Precision::kFp32 || other.precision == Precision::kTf32) {
    other.precision = Precision::kBf16;
    HEADROOM_RETURN_IF_ERROR(also(answer.other.empty() ? "--bf16" : "and --bf16", other));
  }
  return answer;
}

}  // namespace headroom::engine
