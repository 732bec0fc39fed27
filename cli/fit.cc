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
#include "arguments.h"
#include "base/format.h"
#include "command.h"
#include "make_fit.h"
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
  const Result<FitReport> report = [&] {
    Progress progress;  // its line is gone before the report is printed
    return MakeFit(*options, *scope, [&](int predictions) { progress.At(predictions); });
  }();
  if (!report.ok()) return Fail("fit", report.error());

  const ExitCode code = Found(*report) ? ExitCode::kOk : ExitCode::kDoesNotFit;
  if (!options->json) return Print(FitText(*report, *style), code);
  for (const std::string& warning : report->warnings) Warn("fit", warning);
  return Print(FitJson(*report), code);
}

}  // namespace headroom::cli
