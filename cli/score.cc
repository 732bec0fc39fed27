// SPDX-License-Identifier: Apache-2.0
//
// headroom score: how far predictions are from measured runs.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "arguments.h"
#include "base/file.h"
#include "base/format.h"
#include "command.h"
#include "model/config.h"
#include "output.h"
#include "predict/predict.h"
#include "report/json.h"
#include "report/score_report.h"
#include "report/score_text.h"
#include "score_rows.h"

namespace headroom::cli {
namespace {

constexpr Flag kFlags[] = {
    {"--json", Takes::kNothing, "", "one JSON object; errors as fractions (0.01 is 1 %)"},
    {"--rows,--verbose", Takes::kNothing, "", "every phase of every row, in bytes"},
    kColorFlag,
};
constexpr FlagGroup kGroups[] = {{"Output", kFlags}};
constexpr Syntax kSyntax = {
    .command = "score",
    .summary =
        "Predicts every run of a file of measured runs and prints measured, predicted and "
        "error, worst first, and a summary. Rows that hold completes_at and fails_at, the "
        "smallest cap on memory under which a run completes, are also held against the "
        "predicted one. Runs of a kind that is not modelled are counted, never dropped.",
    .positional = "FILE.jsonl",
    .positional_help = "measured runs, one JSON object a line; - reads standard input",
    .groups = kGroups,
    .examples =
        "  headroom score runs.jsonl\n"
        "  headroom score runs.jsonl --json | jq .allocated\n",
};

// A counter on stderr, for people who wait: only on a terminal, only after a moment.
class Progress {
 public:
  explicit Progress(size_t total) : total_(total), shown_(::isatty(STDERR_FILENO) == 1) {}
  ~Progress() {
    if (printed_) std::fputs("\r\x1b[K", stderr);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void At(size_t done) {
    const auto waited = std::chrono::steady_clock::now() - start_;
    if (!shown_ || waited < std::chrono::milliseconds(500)) return;
    fmt::print(stderr, "\r{} of {} rows", done, total_);
    printed_ = true;
  }

 private:
  const size_t total_;
  const bool shown_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool printed_ = false;
};

std::optional<Comparison> Compare(std::string_view what, std::optional<int64_t> measured,
                                  int64_t predicted) {
  if (!measured) return std::nullopt;
  return Comparison{std::string(what), *measured, predicted};
}

// Allocated and peak of every phase, in order. A phase that only one side has stands against 0.
std::vector<Comparison> ComparePhases(const std::vector<MeasuredPhase>& measured,
                                      const Ledger& ledger) {
  std::vector<Comparison> comparisons;
  if (measured.empty()) return comparisons;
  // Not every measured run says what its loading peaked at.
  const bool has_load = measured.front().name == "load";
  std::vector<PhaseMark> marks(ledger.marks().begin(), ledger.marks().end());
  std::erase_if(marks, [&](const PhaseMark& mark) { return mark.name == "load" && !has_load; });
  const size_t count = std::max(measured.size(), marks.size());
  for (size_t i = 0; i < count; ++i) {
    const MeasuredPhase* m = i < measured.size() ? &measured[i] : nullptr;
    const PhaseMark* p = i < marks.size() ? &marks[i] : nullptr;
    if (m != nullptr && p != nullptr && m->name != p->name) p = nullptr;
    const std::string name = Format("phase {} {}", i + 1, m != nullptr ? m->name : p->name);
    comparisons.push_back({name + " allocated", m != nullptr ? m->allocated : 0,
                           p != nullptr ? p->allocated.count() : 0});
    comparisons.push_back(
        {name + " peak", m != nullptr ? m->peak : 0, p != nullptr ? p->peak_allocated.count() : 0});
  }
  return comparisons;
}

// The predicted boundary, and the verdicts 1 % to either side of the measured one.
std::optional<FitComparison> CompareFit(const MeasuredRow& row, const Prediction& prediction) {
  if (!row.completes_at || !row.fails_at) return std::nullopt;
  constexpr int64_t kMarginDivisor = 100;
  const Ledger& ledger = prediction.ledger;
  FitComparison fit;
  fit.boundary.what = "boundary";
  fit.boundary.measured = *row.completes_at;
  fit.boundary.predicted =
      prediction.trace.SmallestCap(ledger.peak_allocated() - Bytes(1), ledger.peak_reserved())
          .count();
  const int64_t below = *row.fails_at - *row.fails_at / kMarginDivisor;
  const int64_t above = *row.completes_at + *row.completes_at / kMarginDivisor;
  fit.false_fit = prediction.trace.Completes(Bytes(below));
  fit.false_refusal = !prediction.trace.Completes(Bytes(above));
  return fit;
}

// hf_memory.py resets the peak once the model is there, and so do we.
int64_t PeakAllocated(const Ledger& ledger) {
  if (ledger.marks().empty()) return ledger.peak_allocated().count();
  int64_t peak = 0;
  for (const PhaseMark& mark : ledger.marks()) {
    if (mark.name != "load") peak = std::max(peak, mark.peak_allocated.count());
  }
  return peak;
}

ScoreRow Score(const MeasuredRow& row, const Prediction& prediction) {
  const Ledger& ledger = prediction.ledger;
  ScoreRow score;
  score.id = row.id;
  score.parameters = Compare("parameters", row.parameters, prediction.parameters);
  score.after_model =
      Compare("model loaded", row.after_model_allocated, prediction.after_model_allocated.count());
  score.allocated = Compare("allocated", row.peak_allocated, PeakAllocated(ledger));
  score.reserved = Compare("reserved", row.peak_reserved, ledger.peak_reserved().count());
  score.device = Compare("device", row.device, prediction.device().count());
  score.phases = ComparePhases(row.phases, ledger);
  score.fit = CompareFit(row, prediction);
  return score;
}

Result<Prediction> PredictRow(const MeasuredRow& row) {
  HEADROOM_ASSIGN_OR_RETURN(const ModelConfig config,
                            ModelConfig::FromJson(row.config_json, row.id));
  Platform platform = MeasuredPlatform();
  if (!row.alloc_conf.empty()) {
    HEADROOM_ASSIGN_OR_RETURN(platform.allocator, ParseAllocConf(row.alloc_conf));
  }
  return Predict(config, row.recipe, platform);
}

ScoreReport ScoreRows(const std::vector<MeasuredRow>& rows) {
  const std::vector<std::string_view> predictable = PredictableModelTypes();
  ScoreReport report;
  Progress progress(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    progress.At(i);
    const MeasuredRow& row = rows[i];
    std::string reason = row.unsupported;
    if (reason.empty() && std::ranges::find(predictable, row.model_type) == predictable.end()) {
      reason = "architecture";
    }
    if (reason.empty()) {
      const Result<Prediction> prediction = PredictRow(row);
      if (prediction.ok()) {
        report.rows.push_back(Score(row, *prediction));
        continue;
      }
      reason = prediction.error().message;
    }
    report.skipped.push_back({row.id, row.model_type, reason});
  }
  return report;
}

Result<std::string> ReadInput(const std::string& path) {
  if (path != "-") return ReadFile(path, MiB(256));
  return ReadFile("/dev/stdin", MiB(256));
}

}  // namespace

ExitCode RunScore(std::span<const std::string> words) {
  const Result<Arguments> arguments = ParseArguments(kSyntax, words);
  if (!arguments.ok()) return Fail("score", arguments.error());
  if (arguments->wants_help()) return Print(HelpText(kSyntax));
  const Result<TextStyle> style = StyleOf(*arguments);
  if (!style.ok()) return Fail("score", style.error());
  const std::string& path = arguments->positional();
  if (path.empty()) {
    return Fail("score", Error::BadInput("no file: write headroom score FILE.jsonl"));
  }
  const Result<std::string> text = ReadInput(path);
  if (!text.ok()) return Fail("score", text.error());
  std::vector<std::string> warnings;
  const Result<std::vector<MeasuredRow>> rows =
      ReadMeasuredRows(*text, path == "-" ? "standard input" : path, warnings);
  if (!rows.ok()) return Fail("score", rows.error());
  for (const std::string& warning : warnings) Warn("score", warning);
  const ScoreReport report = ScoreRows(*rows);
  if (arguments->Has("--json")) return Print(ScoreJson(report));
  const ScoreDetail detail = arguments->Has("--rows") ? ScoreDetail::kPhases : ScoreDetail::kLines;
  return Print(ScoreText(report, detail, *style));
}

}  // namespace headroom::cli
