// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "base/format.h"
#include "report/lengths_report.h"

namespace headroom {
namespace {

// A longer table shows the batches that say something: where the cache grew, the worst, the ends.
constexpr size_t kMostRows = 40;

const LengthsBatch* WorstOf(const LengthsReport& report) {
  const auto worst = std::ranges::max_element(report.batches, {}, &LengthsBatch::peak);
  return worst == report.batches.end() ? nullptr : &*worst;
}

std::set<size_t> RowsToShow(const LengthsReport& report) {
  std::set<size_t> rows;
  const size_t count = report.batches.size();
  if (count <= kMostRows) {
    for (size_t i = 0; i < count; ++i) rows.insert(i);
    return rows;
  }
  Bytes reserved;
  for (size_t i = 0; i < count; ++i) {
    if (report.batches[i].reserved > reserved) rows.insert(i);
    reserved = std::max(reserved, report.batches[i].reserved);
    if (&report.batches[i] == WorstOf(report)) rows.insert(i);
  }
  while (rows.size() > kMostRows) rows.erase(std::next(rows.begin(), 1 + rows.size() / 2));
  rows.insert(0);
  rows.insert(count - 1);
  return rows;
}

std::string Row(std::string_view step, std::string_view shape, std::string_view peak,
                std::string_view reserved, std::string_view cached, std::string_view note) {
  std::string line = "  " + PadLeft(step, 5) + PadLeft(shape, 14) + PadLeft(peak, 12) +
                     PadLeft(reserved, 12) + PadLeft(cached, 10) + "  " + std::string(note);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

std::string Table(const LengthsReport& report, const TextStyle& style) {
  std::string header = Row("batch", "samples x seq", "peak", "reserved", "cached", "");
  header.pop_back();
  std::string out = Paint(style, Colour::kDim, header) + '\n';
  size_t next = 0;
  for (const size_t i : RowsToShow(report)) {
    if (i > next) out += Row(std::string(Sign(style, "…", "...")), "", "", "", "", "");
    next = i + 1;
    const LengthsBatch& batch = report.batches[i];
    const bool failed = report.failure && i + 1 == report.batches.size();
    std::string note;
    if (failed) {
      note = "out of memory";
    } else if (&batch == WorstOf(report)) {
      note = "worst";
    }
    out += Row(std::to_string(batch.step), Format("{} x {}", batch.samples, batch.tokens),
               MiBNumber(batch.peak), MiBNumber(batch.reserved), MiBNumber(batch.cached), note);
  }
  return out;
}

std::string Outcome(const LengthsReport& report) {
  if (report.failure) {
    const LengthsBatch& batch = report.batches.back();
    return Format(
        "Batch {} ({} x {}) runs out of memory in the {} phase{}, asking for {} with {} cached in "
        "blocks that do not serve it.",
        batch.step, batch.samples, batch.tokens, report.failure->phase,
        report.failure->module.empty() ? "" : " at " + report.failure->module,
        FormatBytes(report.failure->requested), FormatBytes(batch.cached));
  }
  const std::string played =
      report.stopped ? Format("Stopped after {} of {} batches", report.batches.size(), report.asked)
                     : Format("All {} batches complete", report.batches.size());
  if (!report.memory) return played + ".";
  const Bytes spare = *report.memory - report.context - report.peak_reserved;
  return Format("{} in {}, {} never reserved.", played, FormatBytes(*report.memory),
                FormatBytes(std::max(spare, Bytes(0))));
}

std::string Variants(const LengthsReport& report) {
  std::string out;
  for (const LengthsVariant& variant : report.variants) {
    std::string end = variant.fails_at > 0
                          ? Format("fails at batch {}", variant.fails_at)
                          : Format("{} MiB reserved", MiBNumber(variant.peak_reserved));
    out += "  " + PadRight(variant.name, 30) + PadLeft(MiBNumber(variant.peak_allocated), 12) +
           " MiB allocated, " + end + '\n';
  }
  return out;
}

std::string Heading(const TextStyle& style, std::string_view text) {
  return '\n' + Paint(style, Colour::kBold, text) + '\n';
}

}  // namespace

void FillLengths(const Ledger& ledger, LengthsReport& report) {
  std::vector<LengthsBatch> begun;
  for (const PhaseMark& mark : ledger.marks()) {
    if (mark.step < 1) continue;
    const auto at = static_cast<size_t>(mark.step) - 1;
    if (at >= report.batches.size()) break;
    if (begun.size() <= at) begun.push_back(report.batches[at]);
    LengthsBatch& batch = begun[at];
    batch.step = mark.step;
    batch.peak = std::max(batch.peak, mark.peak_allocated);
    batch.reserved = mark.reserved;
    batch.cached = mark.reserved - mark.allocated;
  }
  if (report.failure) {
    // The last phase of the failing batch has no mark.
    if (begun.empty()) begun.push_back(report.batches.front());
    LengthsBatch& batch = begun.back();
    batch.step = static_cast<int>(begun.size());
    batch.reserved = ledger.reserved();
    batch.cached = ledger.reserved() - ledger.allocated();
    batch.peak = std::max(batch.peak, ledger.allocated());
  }
  report.batches = std::move(begun);
  report.peak_allocated = ledger.peak_allocated();
  report.peak_reserved = ledger.peak_reserved();
  report.context = ledger.context();
}

std::string LengthsText(const LengthsReport& report, const TextStyle& style) {
  std::string facts;
  for (const std::string& part : report.recipe) {
    if (!facts.empty()) facts += Sign(style, " · ", ", ");
    facts += part;
  }
  std::string out = Paint(style, Colour::kBold, report.model) + '\n' + Paragraph(style, "", facts);
  out += Heading(style, "Batch by batch, MiB (cached: reserved and not allocated at its end)");
  out += Table(report, style);
  if (!report.variants.empty()) {
    out += Heading(style, "The same batches otherwise") + Variants(report);
  }
  for (const auto* lines : {&report.assumptions, &report.warnings}) {
    if (lines->empty()) continue;
    out += Heading(style, lines == &report.assumptions ? "Assumed" : "Note");
    for (const std::string& line : *lines) {
      out += Paragraph(style, Format("  {} ", Sign(style, "•", "-")), line);
    }
  }
  const std::string outcome = Paragraph(style, "", Outcome(report));
  const Colour colour = report.failure ? Colour::kRed : Colour::kGreen;
  return out + '\n' + Paint(style, colour, outcome.substr(0, outcome.size() - 1)) + '\n';
}

}  // namespace headroom
