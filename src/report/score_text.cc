// SPDX-License-Identifier: Apache-2.0
#include "report/score_text.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "base/format.h"

namespace headroom {
namespace {

constexpr int kNumberWidth = 10;
constexpr int kErrorWidth = 8;
constexpr int kReservedWidth = 10;
constexpr int kVerdictWidth = 15;

std::string ErrorText(const Comparison& comparison) {
  if (comparison.exact()) return "exact";
  const double error = comparison.error();
  if (!std::isfinite(error)) return "new";
  if (std::abs(error) < 0.00005) return "<0.01%";
  return Format("{:+.2f}%", error * 100);
}

// Green to the byte, red from the 1 % on that Headroom promises.
Colour ErrorColour(const Comparison& comparison) {
  if (comparison.exact()) return Colour::kGreen;
  return std::abs(comparison.error()) > 0.01 ? Colour::kRed : Colour::kPlain;
}

std::string ErrorCell(const TextStyle& style, const Comparison* comparison,
                      int width = kErrorWidth) {
  if (comparison == nullptr) return PadLeft("", width);
  return PadLeft(Paint(style, ErrorColour(*comparison), ErrorText(*comparison)), width);
}

const Comparison* Pointer(const std::optional<Comparison>& comparison) {
  return comparison ? &*comparison : nullptr;
}

std::string RowsHeader(const TextStyle& style, int id_width) {
  std::string line = PadRight("", id_width) + PadLeft("allocated, MiB", 2 * kNumberWidth) + '\n';
  line += PadRight("row", id_width) + PadLeft("measured", kNumberWidth) +
          PadLeft("predicted", kNumberWidth);
  line += PadLeft("error", kErrorWidth) + PadLeft("phases", kErrorWidth) +
          PadLeft("reserved", kReservedWidth) + PadLeft("device", kErrorWidth);
  const size_t newline = line.find('\n');
  return Paint(style, Colour::kDim, line.substr(0, newline)) + '\n' +
         Paint(style, Colour::kDim, line.substr(newline + 1)) + '\n';
}

std::string RowLine(const TextStyle& style, const ScoreRow& row, int id_width) {
  std::string line = PadRight(Shorten(style, row.id, id_width), id_width);
  const Comparison* allocated = Pointer(row.allocated);
  for (const bool measured : {true, false}) {
    const auto size = [&] { return measured ? allocated->measured : allocated->predicted; };
    line += PadLeft(allocated == nullptr ? "" : MiBNumber(Bytes(size())), kNumberWidth);
  }
  line += ErrorCell(style, allocated) + ErrorCell(style, row.WorstPhase()) +
          ErrorCell(style, Pointer(row.reserved), kReservedWidth) +
          ErrorCell(style, Pointer(row.device));
  return line + '\n';
}

std::string RowBlock(const TextStyle& style, const ScoreRow& row) {
  std::string out = Paint(style, Colour::kBold, row.id) + '\n';
  const auto add = [&](const Comparison* comparison) {
    if (comparison == nullptr) return;
    out += Format("  {}{}{}{}\n", PadRight(comparison->what, 30),
                  PadLeft(Thousands(comparison->measured), 18),
                  PadLeft(Thousands(comparison->predicted), 18), ErrorCell(style, comparison));
  };
  for (const auto* comparison :
       {&row.parameters, &row.after_model, &row.allocated, &row.reserved, &row.device}) {
    add(Pointer(*comparison));
  }
  for (const Comparison& phase : row.phases) add(&phase);
  if (row.fit) add(&row.fit->boundary);
  return out;
}

std::string SummaryLine(const TextStyle& style, std::string_view name, const ErrorSummary& errors) {
  const std::string exact = Format("{} of {}", errors.exact, errors.rows);
  std::string line = PadRight(name, 14) + PadLeft(exact, 12);
  for (const double error : {errors.median, errors.p95, errors.max}) {
    line += PadLeft(Percent(error, 2), 11);
  }
  const std::string low = std::to_string(errors.under_1pct);
  return line +
         PadLeft(Paint(style, errors.under_1pct > 0 ? Colour::kRed : Colour::kPlain, low), 15) +
         '\n';
}

std::string Skipped(const ScoreReport& report, const TextStyle& style) {
  std::map<std::string, std::map<std::string, int>> by_reason;
  for (const SkippedRow& row : report.skipped) ++by_reason[row.reason][row.model_type];
  std::string out;
  for (const auto& [reason, types] : by_reason) {
    std::string text = reason + ":";
    for (const auto& [type, count] : types) text += Format(" {} {},", type, count);
    text.back() = '.';
    out += Paragraph(style, "  ", text);
  }
  return out;
}

// Where the run begins to fit: a line for each row that was measured there, worst first.
std::string FitText(const ScoreReport& report, const FitSummary& summary, const TextStyle& style) {
  if (summary.rows == 0) return "";
  std::vector<const ScoreRow*> rows;
  for (const ScoreRow& row : report.rows) {
    if (row.fit) rows.push_back(&row);
  }
  std::ranges::stable_sort(rows, std::greater(), [](const ScoreRow* row) {
    return std::abs(row->fit->boundary.error());
  });
  const int id_width = style.width - 2 * kNumberWidth - kErrorWidth - kVerdictWidth;
  std::string out =
      '\n' +
      Paint(style, Colour::kDim,
            PadRight("smallest cap that fits, MiB", id_width) + PadLeft("measured", kNumberWidth) +
                PadLeft("predicted", kNumberWidth) + PadLeft("error", kErrorWidth) +
                PadLeft("verdict", kVerdictWidth)) +
      '\n';
  for (const ScoreRow* row : rows) {
    const FitComparison& fit = *row->fit;
    const bool wrong = fit.false_fit || fit.false_refusal;
    const std::string_view verdict = fit.false_fit       ? "false fit"
                                     : fit.false_refusal ? "false refusal"
                                                         : "right";
    out += PadRight(Shorten(style, row->id, id_width), id_width) +
           PadLeft(MiBNumber(Bytes(fit.boundary.measured)), kNumberWidth) +
           PadLeft(MiBNumber(Bytes(fit.boundary.predicted)), kNumberWidth) +
           ErrorCell(style, &fit.boundary) +
           PadLeft(Paint(style, wrong ? Colour::kRed : Colour::kGreen, verdict), kVerdictWidth) +
           '\n';
  }
  return out + Format("{} rows, {} false fits, {} false refusals; error: median {}, max {}\n",
                      summary.rows, summary.false_fits, summary.false_refusals,
                      Percent(summary.boundary.median, 2), Percent(summary.boundary.max, 2));
}

std::string SummaryText(const ScoreReport& report, const TextStyle& style) {
  const ScoreSummary summary = Summarize(report);
  std::string out =
      Paint(style, Colour::kBold,
            Format("{} {}, {} predicted, {} not modelled", summary.rows,
                   summary.rows == 1 ? "row" : "rows", summary.supported, report.skipped.size())) +
      '\n' + Skipped(report, style);
  if (report.rows.empty()) return out;
  out += '\n' +
         Paint(style, Colour::kDim,
               PadRight("", 14) + PadLeft("exact", 12) + PadLeft("median", 11) +
                   PadLeft("p95", 11) + PadLeft("max", 11) + PadLeft("over 1 % low", 15)) +
         '\n';
  out += PadRight("parameters", 14) +
         PadLeft(Format("{} of {}", summary.params_exact, summary.supported), 12) + '\n';
  out += PadRight("model loaded", 14) +
         PadLeft(Format("{} of {}", summary.after_model_exact, summary.supported), 12) + '\n';
  return out + SummaryLine(style, "allocated", summary.allocated) +
         SummaryLine(style, "phases", summary.phase_allocated) +
         SummaryLine(style, "reserved", summary.reserved) +
         SummaryLine(style, "device", summary.device) + FitText(report, summary.fit, style);
}

}  // namespace

std::string ScoreText(const ScoreReport& report, ScoreDetail detail, const TextStyle& style) {
  std::vector<const ScoreRow*> rows;
  for (const ScoreRow& row : report.rows) rows.push_back(&row);
  std::ranges::stable_sort(rows, std::greater(),
                           [](const ScoreRow* row) { return row->WorstError(); });
  std::string out;
  const int id_width = style.width - 2 * kNumberWidth - 3 * kErrorWidth - kReservedWidth;
  if (detail == ScoreDetail::kLines && !rows.empty()) out += RowsHeader(style, id_width);
  for (const ScoreRow* row : rows) {
    out += detail == ScoreDetail::kLines ? RowLine(style, *row, id_width) : RowBlock(style, *row);
  }
  if (!out.empty()) out += '\n';
  return out + SummaryText(report, style);
}

}  // namespace headroom
