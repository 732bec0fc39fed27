// SPDX-License-Identifier: Apache-2.0
#include "engine/budget.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/format.h"
#include "engine/cpu/cpu_ops.h"
#include "engine/step_set.h"

namespace headroom::engine {
namespace {

using graph::Recompute;

// Shares of a step's time that a change adds.
struct Costs {
  double cheap = 0;
  double block = 0;
  double chunk = 0;        // each time that the chunks of the loss are a quarter as large
  double micro_batch = 0;  // each time that the batch is halved
};
// BERT- and GPT-2-like models on two cores.
constexpr Costs kCpuCosts = {.cheap = 0.03, .block = 0.30, .chunk = 0.005, .micro_batch = 0.02};
// One H200 (docs/performance.md): cheap adds 4.5 % to BERT-large and 5.4 % to GPT-2, block 36 % to
// BERT-large, 8 x 4 in place of 32 samples 6 %. Chunks are taken to cost what they do on the CPU.
constexpr Costs kCudaCosts = {.cheap = 0.05, .block = 0.35, .chunk = 0.005, .micro_batch = 0.03};

double CostOf(const Costs& costs, Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return 0;
    case Recompute::kCheap:
      return costs.cheap;
    case Recompute::kBlock:
      return costs.block;
  }
  return 0;
}
constexpr std::array<int64_t, 3> kChunkRows = {0, 256, 64};

// Whether the loss has the same bits in chunks of so many rows. 16-bit gradients are rounded after
// each chunk, and a GPU's products sum a chunk in an order of its own.
bool ChunksKeepBits(const TrainOptions& options, int64_t rows) {
  if (!cpu::kExactProducts || options.cuda) return false;
  const bool storage_is_float32 =
      options.precision == Precision::kFp32 || options.precision == Precision::kTf32;
  if (!storage_is_float32 && options.gradient_accumulation_steps == 1) return false;
  const int64_t asked = NativeOptionsOf(options, 1, 0).model.loss_chunk_rows;
  return asked % cpu::kLossRows == 0 && rows % cpu::kLossRows == 0;
}

std::vector<BudgetPlan> Candidates(const TrainOptions& options) {
  const Costs& costs = options.cuda ? kCudaCosts : kCpuCosts;
  std::vector<BudgetPlan> plans;
  int halvings = 0;
  for (int64_t batch = options.per_device_train_batch_size; batch >= 1; batch /= 2, ++halvings) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kCheap, Recompute::kBlock}) {
      if (recompute < options.recompute) continue;
      for (size_t chunk = 0; chunk < kChunkRows.size(); ++chunk) {
        if (chunk > 0 && options.deterministic && !ChunksKeepBits(options, kChunkRows[chunk])) {
          continue;
        }
        BudgetPlan plan;
        plan.options = options;
        plan.options.per_device_train_batch_size = batch;
        plan.options.gradient_accumulation_steps *= int64_t{1} << halvings;
        plan.options.recompute = recompute;
        if (kChunkRows[chunk] > 0) plan.options.loss_chunk_rows = kChunkRows[chunk];
        plan.cost = CostOf(costs, recompute) - CostOf(costs, options.recompute) +
                    costs.chunk * static_cast<double>(chunk) + costs.micro_batch * halvings;
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
    if (options.deterministic || batch % 2 != 0) break;
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
  if (options.deterministic) {
    TrainOptions free = options;
    free.deterministic = false;
    HEADROOM_ASSIGN_OR_RETURN(const BudgetAnswer without,
                              FitBudget(config, free, shapes, evaluates, budget));
    answer.otherwise = without.cheapest ? *without.cheapest : without.smallest;
  }
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
