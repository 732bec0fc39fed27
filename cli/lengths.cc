// SPDX-License-Identifier: Apache-2.0
#include "lengths.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "interrupt.h"
#include "make_plan.h"
#include "output.h"
#include "progress_line.h"
#include "report/lengths_report.h"

namespace headroom::cli {
namespace {

struct Variant {
  std::string name;
  std::vector<BatchShape> batches;
};

std::vector<Variant> VariantsOf(const std::vector<BatchShape>& batches) {
  int64_t longest = 0;
  for (const BatchShape& batch : batches) longest = std::max(longest, batch.tokens);
  Variant padded{Format("padded to the longest, {}", longest), batches};
  for (BatchShape& batch : padded.batches) batch.tokens = longest;
  Variant sorted{"longest first", batches};
  std::ranges::stable_sort(sorted.batches, std::greater(),
                           [](const BatchShape& batch) { return batch.samples * batch.tokens; });
  return {std::move(padded), std::move(sorted)};
}

int FailingStep(const Prediction& prediction) {
  if (!prediction.out_of_memory) return 0;
  int last_complete = 0;
  for (const PhaseMark& mark : prediction.ledger.marks()) {
    if (mark.name == "step_end") last_complete = mark.step;
  }
  return last_complete + 1;
}

// Everything that the plays of one report share.
struct Run {
  const ModelConfig& config;
  Recipe recipe;
  Platform platform;
};

Result<LengthsReport> Build(const PlanOptions& options) {
  HEADROOM_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(options.model));
  Decided decided = Decide(options, model.config);
  HEADROOM_RETURN_IF_ERROR(CheckScaler(decided.recipe));
  if (decided.recipe.driver == Driver::kGenerate) {
    return Error::BadInput("--lengths plays batches of training: leave out --generate");
  }
  if (decided.recipe.batches.empty()) {
    return Error::BadInput("--lengths: images have no sequence length: leave it out");
  }
  Run run{model.config, decided.recipe, decided.platform};
  const std::optional<Budget> budget = BudgetOf(options);
  ProgressLine progress;
  const size_t batches = run.recipe.batches.size();
  const auto play = [&](std::string_view what) -> Result<Prediction> {
    const KeepGoing keep_going = [&](int step) {
      progress.Show([&] { return Format("{}: batch {} of {}", what, step, batches); });
      return !InterruptScope::Requested();
    };
    return Predict(run.config, run.recipe, run.platform, nullptr, keep_going);
  };
  if (budget) {
    // What lies outside the allocator does not depend on the batches: one of them tells it.
    Recipe shortest = run.recipe;
    const auto by_tokens = [](const BatchShape& a, const BatchShape& b) {
      return a.samples * a.tokens < b.samples * b.tokens;
    };
    shortest.batches = {*std::ranges::min_element(run.recipe.batches, by_tokens)};
    HEADROOM_ASSIGN_OR_RETURN(const Prediction one, Predict(run.config, shortest, run.platform));
    run.platform.memory_limit = std::max(budget->memory - one.ledger.context(), Bytes(1));
  }
  HEADROOM_ASSIGN_OR_RETURN(const Prediction prediction, play("playing"));

  LengthsReport report;
  report.model = model.name;
  report.recipe = RecipeParts(decided.recipe, prediction.attn_used);
  report.assumptions = decided.assumptions;
  report.assumptions.insert(report.assumptions.end(), prediction.assumptions.begin(),
                            prediction.assumptions.end());
  std::erase_if(report.assumptions,
                [](const std::string& line) { return line.starts_with("every sample has"); });
  report.warnings = decided.warnings;
  for (const BatchShape& batch : run.recipe.batches) {
    LengthsBatch shape;
    shape.samples = batch.samples;
    shape.tokens = batch.tokens;
    report.batches.push_back(shape);
  }
  report.asked = report.batches.size();
  report.stopped = InterruptScope::Requested();
  if (budget) report.memory = budget->memory;
  if (const std::optional<OutOfMemory>& failure = prediction.out_of_memory) {
    report.failure = FailurePoint{failure->requested, failure->phase, failure->module, failure->op};
  }
  FillLengths(prediction.ledger, report);
  for (Variant& variant : VariantsOf(run.recipe.batches)) {
    if (InterruptScope::Requested()) break;
    run.recipe.batches = std::move(variant.batches);
    HEADROOM_ASSIGN_OR_RETURN(const Prediction other, play(variant.name));
    if (InterruptScope::Requested()) break;
    report.variants.push_back({variant.name, other.ledger.peak_allocated(),
                               other.ledger.peak_reserved(), FailingStep(other)});
  }
  return report;
}

}  // namespace

ExitCode RunLengths(const PlanOptions& options, const TextStyle& style) {
  const InterruptScope scope;
  const Result<LengthsReport> report = Build(options);
  if (!report.ok()) return Fail("plan", report.error());
  ExitCode code = report->failure ? ExitCode::kDoesNotFit : ExitCode::kOk;
  if (InterruptScope::Requested()) code = ExitCode::kInterrupted;
  if (!options.json) return Print(LengthsText(*report, style), code);
  for (const std::string& warning : report->warnings) Warn("plan", warning);
  return Print(LengthsJson(*report), code);
}

}  // namespace headroom::cli
