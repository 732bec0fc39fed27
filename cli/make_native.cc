// SPDX-License-Identifier: Apache-2.0
#include "make_native.h"

#include <utility>

#include "base/format.h"
#include "graph/memory_plan.h"

namespace headroom::cli {
namespace {

std::vector<std::string> Parts(const engine::TrainOptions& options) {
  std::string batch =
      Format("batch {} x {} tokens", options.per_device_train_batch_size, options.sequence_length);
  if (options.target_sequence_length > 0) {
    batch += Format(" to {}", options.target_sequence_length);
  }
  std::vector<std::string> parts = {std::string(Name(options.task)), std::move(batch)};
  if (options.gradient_accumulation_steps > 1) {
    parts.push_back(Format("accumulation {}", options.gradient_accumulation_steps));
  }
  parts.push_back(std::string(Name(options.precision)) + (options.lean ? " lean" : ""));
  parts.emplace_back(OptimName(options.optimizer));
  if (options.recompute != graph::Recompute::kNone) {
    parts.push_back(Format("recompute {}", Name(options.recompute)));
  }
  parts.emplace_back("native engine");
  return parts;
}

}  // namespace

NativeReport MakeNativeReport(const std::string& model, const engine::NativeStep& step,
                              const engine::TrainOptions& options, Bytes arena,
                              std::vector<std::string> assumptions) {
  NativeReport result;
  result.ledger = LedgerOf(step.graph(), step.plan);
  // Evaluation may need more than training.
  result.ledger.ChangeReserved(arena - step.plan.size);
  PlanHeader header;
  header.model = model;
  header.recipe = Parts(options);
  for (const graph::Parameter& parameter : step.graph().parameters()) {
    header.parameters += step.graph().tensor(parameter.weight).shape.NumElements();
  }
  header.trainable = header.parameters;
  header.assumptions = std::move(assumptions);
  header.native = NativePlan{.device = "cpu", .lower_bound = step.plan.lower_bound};
  result.report = BuildPlanReport(result.ledger, std::move(header));
  return result;
}

}  // namespace headroom::cli
