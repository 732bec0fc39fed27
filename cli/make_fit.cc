// SPDX-License-Identifier: Apache-2.0
#include "make_fit.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "advise/realise.h"
#include "base/format.h"
#include "make_plan.h"
#include "model/parameter_table.h"

namespace headroom::cli {
namespace {

FitChange ToReport(const Change& change) {
  return {.parts = change.parts,
          .effect = std::string(Name(change.effect)),
          .note = change.note,
          .needed = *change.trial.needed,
          .saved = change.saved,
          .fits = change.trial.fits,
          .step_seconds = change.trial.cost.seconds(),
          .step_flops = change.trial.cost.flops,
          .step_bytes = change.trial.cost.bytes,
          .time_change = change.time_change};
}

std::optional<FitLimit> ToReport(const std::optional<Largest>& largest) {
  if (!largest) return std::nullopt;
  return FitLimit{largest->value, largest->limited_by_memory};
}

FitBest ToBest(const Change& change, const PlanOptions& options) {
  const Realisation realised = Realise(change.variant, options.alloc_conf);
  std::string command = Format("headroom plan {} {}", options.model, realised.flags);
  if (options.gpu) command += Format(" --gpu \"{}\"", options.gpu->name);
  if (options.memory) command += Format(" --memory {}", options.memory->count());
  return {change.parts,
          std::move(command),
          realised.environment,
          realised.from_pretrained,
          realised.training_arguments,
          realised.lora};
}

void AddAdvice(const Advice& advice, const PlanOptions& options, FitReport& report) {
  report.context = advice.asked.context;
  report.needed = *advice.asked.needed;
  report.fits = advice.asked.fits;
  report.step_seconds = advice.asked.cost.seconds();
  report.step_flops = advice.asked.cost.flops;
  report.step_bytes = advice.asked.cost.bytes;
  report.largest_batch = ToReport(advice.batch);
  report.largest_sequence = ToReport(advice.sequence);
  report.largest_lora_rank = ToReport(advice.lora_rank);
  for (const Change& change : advice.alone) report.alone.push_back(ToReport(change));
  for (const Change& change : advice.together) report.together.push_back(ToReport(change));
  for (const WithoutHelp& without : advice.without_help) {
    report.without_help.push_back({without.name, without.why});
  }
  if (const Change* best = advice.Best()) report.best = ToBest(*best, options);
}

}  // namespace

Result<FitReport> MakeFit(const PlanOptions& options, const AdviceScope& scope,
                          const std::function<void(int)>& progress) {
  const std::optional<Budget> budget = BudgetOf(options);
  if (!budget) {
    return Error::BadInput(
        "fit into what? Add --gpu NAME (headroom gpus lists them) or "
        "--memory SIZE, like 24GiB");
  }
  HEADROOM_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(options.model));
  const Decided decided = Decide(options, model.config);
  HEADROOM_RETURN_IF_ERROR(CheckScaler(decided.recipe));
  if (scope.lora_rank && !scope.changes && !decided.recipe.lora) {
    return Error::BadInput("--solve lora_r asks for the rank of adapters: add --lora");
  }
  if (scope.sequence && !scope.changes && decided.recipe.sequence_length == 0) {
    return Error::BadInput("--solve seq: images have no sequence length: solve for batch");
  }
  Workbench bench(model.config, decided.platform, budget->memory);
  const Result<Advice> advice =
      Advise(bench, {decided.recipe, decided.platform.allocator}, scope, progress);
  if (!advice.ok()) return advice.error().In(model.origin);

  FitReport report;
  report.model = model.name;
  report.recipe = RecipeParts(decided.recipe, advice->asked.attn_used);
  report.device = budget->gpu;
  report.timed_on = decided.platform.gpu.name;
  report.memory = budget->memory;
  report.batch = decided.recipe.per_device_train_batch_size;
  report.sequence = decided.recipe.sequence_length;
  report.changes_tried = scope.changes;
  AddAdvice(*advice, options, report);
  HEADROOM_ASSIGN_OR_RETURN(const ParameterTable table,
                            ParameterTable::Build(model.config, decided.recipe.task));
  report.parameters = table.parameter_count();
  report.assumptions = decided.assumptions;
  if (scope.changes) {
    report.assumptions.push_back(
        Format("step times are estimates for the {}: by its data sheet and the kernels of the "
               "step (docs/advice.md)",
               report.timed_on));
  }
  report.warnings = decided.warnings;
  std::ranges::copy(model.config.warnings(), std::back_inserter(report.warnings));
  return report;
}

}  // namespace headroom::cli
