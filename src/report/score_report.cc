// SPDX-License-Identifier: Apache-2.0
#include "report/score_report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace headroom {
namespace {

constexpr double kTooLow = 0.01;

ErrorSummary SummarizeErrors(const std::vector<const Comparison*>& comparisons) {
  ErrorSummary summary;
  std::vector<double> errors;
  for (const Comparison* comparison : comparisons) {
    if (comparison == nullptr) continue;
    errors.push_back(std::abs(comparison->error()));
    if (comparison->exact()) ++summary.exact;
    if (comparison->error() < -kTooLow) ++summary.under_1pct;
  }
  summary.rows = static_cast<int>(errors.size());
  if (errors.empty()) return summary;
  std::ranges::sort(errors);
  const size_t n = errors.size();
  summary.median = (errors[(n - 1) / 2] + errors[n / 2]) / 2;
  summary.p95 = errors[(95 * n + 99) / 100 - 1];
  summary.max = errors.back();
  return summary;
}

const Comparison* Pointer(const std::optional<Comparison>& comparison) {
  return comparison ? &*comparison : nullptr;
}

std::vector<const Comparison*> ByteComparisons(const ScoreRow& row) {
  std::vector<const Comparison*> all = {Pointer(row.after_model), Pointer(row.allocated),
                                        Pointer(row.reserved), Pointer(row.device),
                                        row.WorstPhase()};
  if (row.fit) all.push_back(&row.fit->boundary);
  std::erase(all, nullptr);
  return all;
}

FitSummary SummarizeFit(const std::vector<ScoreRow>& rows) {
  FitSummary summary;
  std::vector<const Comparison*> boundaries;
  for (const ScoreRow& row : rows) {
    if (!row.fit) continue;
    boundaries.push_back(&row.fit->boundary);
    summary.false_fits += row.fit->false_fit ? 1 : 0;
    summary.false_refusals += row.fit->false_refusal ? 1 : 0;
  }
  summary.rows = static_cast<int>(boundaries.size());
  summary.boundary = SummarizeErrors(boundaries);
  return summary;
}

}  // namespace

double Comparison::error() const {
  if (measured == predicted) return 0;
  if (measured == 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(predicted - measured) / static_cast<double>(measured);
}

const Comparison* ScoreRow::WorstPhase() const {
  const auto worst = std::ranges::max_element(
      phases, {}, [](const Comparison& c) { return std::pair(std::abs(c.error()), !c.exact()); });
  return worst == phases.end() ? nullptr : &*worst;
}

double ScoreRow::WorstError() const {
  double worst = 0;
  for (const Comparison* comparison : ByteComparisons(*this)) {
    worst = std::max(worst, std::abs(comparison->error()));
  }
  return worst;
}

ScoreSummary Summarize(const ScoreReport& report) {
  ScoreSummary summary;
  summary.supported = static_cast<int>(report.rows.size());
  summary.rows = summary.supported + static_cast<int>(report.skipped.size());
  for (const SkippedRow& row : report.skipped) ++summary.unsupported[row.model_type];
  const auto exact = [](const std::optional<Comparison>& c) { return c && c->exact() ? 1 : 0; };
  std::vector<const Comparison*> allocated, reserved, device, phases;
  for (const ScoreRow& row : report.rows) {
    summary.params_exact += exact(row.parameters);
    summary.after_model_exact += exact(row.after_model);
    allocated.push_back(Pointer(row.allocated));
    reserved.push_back(Pointer(row.reserved));
    device.push_back(Pointer(row.device));
    phases.push_back(row.WorstPhase());
  }
  summary.allocated = SummarizeErrors(allocated);
  summary.reserved = SummarizeErrors(reserved);
  summary.device = SummarizeErrors(device);
  summary.phase_allocated = SummarizeErrors(phases);
  summary.fit = SummarizeFit(report.rows);
  return summary;
}

std::vector<WorstComparison> Worst(const ScoreReport& report, size_t count) {
  std::vector<WorstComparison> worst;
  for (const ScoreRow& row : report.rows) {
    for (const Comparison* comparison : ByteComparisons(row)) {
      if (!comparison->exact()) worst.push_back({row.id, *comparison});
    }
  }
  std::ranges::stable_sort(worst, std::greater(),
                           [](const WorstComparison& w) { return std::abs(w.comparison.error()); });
  if (worst.size() > count) worst.resize(count);
  return worst;
}

}  // namespace headroom
