// SPDX-License-Identifier: Apache-2.0
//
// headroom fit: what fits, and what to change so that it does.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>

#include "advise/advice.h"
#include "advise/realise.h"
#include "arguments.h"
#include "base/format.h"
#include "command.h"
#include "make_plan.h"
#include "model/parameter_table.h"
#include "output.h"
#include "report/fit_report.h"

namespace headroom::cli {
namespace {

constexpr Flag kFitFlags[] = {
    {"--solve", Takes::kValue, "WHAT", "only the largest that fits: batch, seq or lora_r"},
};
constexpr Flag kOutputFlags[] = {
    {"--json", Takes::kNothing, "", "one JSON object; sizes in bytes, times in seconds"},
    kColorFlag,
};

const Syntax& FitSyntax() {
  static const std::vector<FlagGroup> groups = [] {
    std::vector<FlagGroup> all = {{"Question", kFitFlags}};
    std::ranges::copy(RecipeFlags(), std::back_inserter(all));
    all.push_back({"Output", kOutputFlags});
    return all;
  }();
  static const Syntax syntax = {
      .command = "fit",
      .summary =
          "Finds the largest batch and the longest sequence that fit a GPU, and, when the run as "
          "asked does not fit, the changes that make it fit, alone and together: what each saves "
          "to the byte, and about what it costs in time. Exits with 1 when nothing makes it fit.",
      .positional = "MODEL",
      .positional_help = "as for headroom plan: a config.json, its folder, or a name",
      .groups = groups,
      .examples =
          "  headroom fit bert-large-uncased --batch 32 --gpu \"RTX 3060\"\n"
          "  headroom fit meta-llama/Llama-3.1-8B --batch 8 --bf16 --gpu H200\n"
          "  headroom fit gpt2 --seq 1024 --bf16 --memory 12GiB --solve batch\n",
  };
  return syntax;
}

Result<AdviceScope> ReadScope(const Arguments& arguments) {
  const std::optional<std::string> solve = arguments.Value("--solve");
  if (!solve) return AdviceScope{};
  AdviceScope scope{.batch = *solve == "batch",
                    .sequence = *solve == "seq",
                    .lora_rank = *solve == "lora_r",
                    .changes = false};
  if (scope.batch || scope.sequence || scope.lora_rank) return scope;
  return Error::BadInput(Format("--solve {}: choose batch, seq or lora_r", *solve));
}

// A counter on stderr, for people who wait: only on a terminal, only after a moment.
class Progress {
 public:
  ~Progress() {
    if (printed_) std::fputs("\r\x1b[K", stderr);
  }
  void At(int predictions) {
    const auto waited = std::chrono::steady_clock::now() - start_;
    if (!shown_ || waited < std::chrono::milliseconds(500)) return;
    fmt::print(stderr, "\r{} runs predicted", predictions);
    printed_ = true;
  }

 private:
  const bool shown_ = ::isatty(STDERR_FILENO) == 1;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool printed_ = false;
};

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

Result<FitReport> MakeFit(const PlanOptions& options, const AdviceScope& scope) {
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
  Progress progress;
  const Result<Advice> advice = Advise(bench, {decided.recipe, decided.platform.allocator}, scope,
                                       [&](int predictions) { progress.At(predictions); });
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

// With --solve the question is whether anything was found; else whether something makes it fit.
bool Found(const FitReport& report) {
  if (report.changes_tried) return report.fits || report.best.has_value();
  for (const auto* limit :
       {&report.largest_batch, &report.largest_sequence, &report.largest_lora_rank}) {
    if (*limit) return (*limit)->value.has_value();
  }
  return false;
}

}  // namespace

ExitCode RunFit(std::span<const std::string> words) {
  const Result<Arguments> arguments = ParseArguments(FitSyntax(), words);
  if (!arguments.ok()) return Fail("fit", arguments.error());
  if (arguments->wants_help()) return Print(HelpText(FitSyntax()));
  const Result<TextStyle> style = StyleOf(*arguments);
  if (!style.ok()) return Fail("fit", style.error());
  const Result<AdviceScope> scope = ReadScope(*arguments);
  if (!scope.ok()) return Fail("fit", scope.error());
  const Result<PlanOptions> options = ReadPlanOptions(*arguments, "fit");
  if (!options.ok()) return Fail("fit", options.error());
  const Result<FitReport> report = MakeFit(*options, *scope);
  if (!report.ok()) return Fail("fit", report.error());

  const ExitCode code = Found(*report) ? ExitCode::kOk : ExitCode::kDoesNotFit;
  if (!options->json) return Print(FitText(*report, *style), code);
  for (const std::string& warning : report->warnings) Warn("fit", warning);
  return Print(FitJson(*report), code);
}

}  // namespace headroom::cli
