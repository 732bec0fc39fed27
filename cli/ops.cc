// SPDX-License-Identifier: Apache-2.0
//
// headroom ops: what a training step computes and moves.

#include <algorithm>
#include <iterator>
#include <vector>

#include "advise/op_profile.h"
#include "advise/step_cost.h"
#include "arguments.h"
#include "command.h"
#include "device.h"
#include "make_plan.h"
#include "measure_ops.h"
#include "output.h"
#include "report/ops_report.h"

namespace headroom::cli {
namespace {

constexpr size_t kLargestShown = 12;

constexpr Flag kMeasureFlags[] = {
    {"--measure", Takes::kNothing, "",
     "the time of each op of the native engine's step, which runs here with random weights"},
    kDeviceFlag,
};
constexpr Flag kOutputFlags[] = {
    {"--json", Takes::kNothing, "", "one JSON object; FLOP, bytes and seconds"},
    kColorFlag,
};

const Syntax& OpsSyntax() {
  static const std::vector<FlagGroup> groups = [] {
    std::vector<FlagGroup> all(RecipeFlags().begin(), RecipeFlags().end());
    all.push_back({"Measuring", kMeasureFlags});
    all.push_back({"Output", kOutputFlags});
    return all;
  }();
  static const Syntax syntax = {
      .command = "ops",
      .summary =
          "Counts what the kernels of a training step compute and move, in the three classes of "
          "\"Data Movement Is All You Need\": tensor contractions, normalizations and element-wise "
          "operations; forward, backward and optimizer; with the time that a GPU's arithmetic and "
          "memory cannot go below (its roofline). With --measure the native engine runs the step "
          "and times its ops.",
      .positional = "MODEL",
      .positional_help = "as for headroom plan: a config.json, its folder, or a name",
      .groups = groups,
      .examples =
          "  headroom ops bert-large-uncased --batch 8 --seq 512 --bf16 --gpu V100\n"
          "  headroom ops meta-llama/Llama-3.1-8B --batch 1 --gpu H200 --json\n"
          "  headroom ops bert-large-uncased --batch 8 --seq 512 --bf16 --measure\n",
  };
  return syntax;
}

OpsLine ToLine(const OpTotals& totals) {
  return {totals.flops,           totals.bytes,          totals.peak_seconds,
          totals.reached_seconds, totals.memory_seconds, totals.kernels};
}

void AddProfile(const OpProfile& profile, OpsReport& report) {
  report.total = ToLine(profile.Sum());
  for (int c = 0; c < kOpClassCount; ++c) {
    const auto op_class = static_cast<OpClass>(c);
    report.classes.push_back({"", std::string(Name(op_class)), ToLine(profile.Sum(op_class))});
  }
  for (int p = 0; p < kOpPhaseCount; ++p) {
    const auto phase = static_cast<OpPhase>(p);
    report.phases.push_back({std::string(Name(phase)), "", ToLine(profile.Sum(phase))});
    for (int c = 0; c < kOpClassCount; ++c) {
      const auto op_class = static_cast<OpClass>(c);
      const OpTotals& cell = profile.Cell(phase, op_class);
      if (cell.kernels == 0) continue;
      report.cells.push_back({std::string(Name(phase)), std::string(Name(op_class)), ToLine(cell)});
    }
  }
  for (const OpGroup& group : profile.Largest(kLargestShown)) {
    report.largest.push_back({group.module, group.name, std::string(Name(group.phase)),
                              std::string(Name(group.op_class)), ToLine(group.totals)});
  }
}

// The dtype in which the recipe's products run.
DType ProductDType(const Recipe& recipe) {
  if (recipe.precision == Precision::kBf16) return DType::kBFloat16;
  if (recipe.precision == Precision::kFp16) return DType::kFloat16;
  return recipe.weights_dtype.value_or(DType::kFloat32);
}

std::vector<std::string> Assumed(const Decided& decided) {
  std::vector<std::string> lines = decided.assumptions;
  lines.push_back(
      "every kernel reads its operands from memory once and writes its results once; a fused "
      "attention is one contraction, its softmax included");
  lines.push_back(
      "under a causal mask fused attention leaves out the pairs that it hides; masks and positions "
      "made once a step are not counted");
  lines.push_back("rates of the data sheet, without sparsity; launches and waiting not counted");
  return lines;
}

Result<OpsReport> MakeOps(const PlanOptions& options) {
  HEADROOM_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(options.model));
  const Decided decided = Decide(options, model.config);
  if (decided.recipe.driver == Driver::kGenerate) {
    return Error::Unsupported("ops counts the kernels of a training step: leave --generate out");
  }
  HEADROOM_RETURN_IF_ERROR(CheckScaler(decided.recipe));
  const Recipe& recipe = decided.recipe;
  OpProfile profile(decided.platform.gpu, recipe.precision);
  const Result<Prediction> prediction = Predict(model.config, recipe, decided.platform, &profile);
  if (!prediction.ok()) return prediction.error().In(model.origin);
  profile.AverageOver(recipe.steps);

  OpsReport report;
  report.model = model.name;
  report.recipe = RecipeParts(recipe, prediction->attn_used);
  report.parameters = prediction->parameters;
  report.gpu = decided.platform.gpu.name;
  const Rates rates = PeakRates(decided.platform.gpu, recipe.precision, OpClass::kContraction,
                                ProductDType(recipe));
  report.product_flops = rates.flops;
  report.memory_bandwidth = rates.bytes;
  AddProfile(profile, report);
  report.assumptions = Assumed(decided);
  report.warnings = decided.warnings;
  std::ranges::copy(model.config.warnings(), std::back_inserter(report.warnings));
  return report;
}

}  // namespace

ExitCode RunOps(std::span<const std::string> words) {
  const Result<Arguments> arguments = ParseArguments(OpsSyntax(), words);
  if (!arguments.ok()) return Fail("ops", arguments.error());
  if (arguments->wants_help()) return Print(HelpText(OpsSyntax()));
  const Result<TextStyle> style = StyleOf(*arguments);
  if (!style.ok()) return Fail("ops", style.error());
  const Result<PlanOptions> options = ReadPlanOptions(*arguments, "ops");
  if (!options.ok()) return Fail("ops", options.error());
  const Result<std::optional<DeviceName>> device = ReadDevice(*arguments);
  if (!device.ok()) return Fail("ops", device.error());
  if (arguments->Has("--measure")) return RunMeasuredOps(*options, *device, *style);
  if (*device) return Fail("ops", Error::BadInput("--device: says where --measure runs: add it"));
  const Result<OpsReport> report = MakeOps(*options);
  if (!report.ok()) return Fail("ops", report.error());
  if (!options->json) return Print(OpsText(*report, *style));
  for (const std::string& warning : report->warnings) Warn("ops", warning);
  return Print(OpsJson(*report));
}

}  // namespace headroom::cli
