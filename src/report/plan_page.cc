// SPDX-License-Identifier: Apache-2.0
#include "report/plan_page.h"

#include <utility>
#include <vector>

#include "base/format.h"
#include "report/plan_text.h"
#include "report/text.h"

namespace headroom {
namespace {

std::string PeakSentence(const PlanReport& report) {
  const PlanPeak& peak = report.peak;
  std::string text = peak.step > 0 ? Format("Peak in step {}, ", peak.step) : "Peak while ";
  text += PhaseWords(peak.phase);
  if (!peak.module.empty()) text += Format(", at {}", peak.module);
  if (!peak.op.empty()) text += Format(" ({})", peak.op);
  return text + ".";
}

Tone ToneOf(const Verdict& verdict) {
  if (!verdict.fits) return Tone::kBad;
  return verdict.tight ? Tone::kWarning : Tone::kGood;
}

PageTotal DeviceTotal(const PlanReport& report) {
  return {"device", report.device,
          Format("+ {} CUDA context and libraries", FormatMiB(report.device - report.reserved))};
}

std::vector<PageTotal> Totals(const PlanReport& report) {
  return {{"allocated", report.allocated, "the tensors, at the peak"},
          {"reserved", report.reserved,
           Format("+ {} cached by the allocator", FormatMiB(report.reserved - report.allocated))},
          DeviceTotal(report)};
}

std::vector<PageTotal> ArenaTotals(const PlanReport& report) {
  std::vector<PageTotal> totals = {
      {"planned", report.allocated, "alive at the peak"},
      {"arena", report.reserved,
       Format("one block, {:.3f} of that", report.header.native->Ratio(report.reserved))}};
  if (report.device > report.reserved) totals.push_back(DeviceTotal(report));
  return totals;
}

}  // namespace

ReportPage PlanPage(const PlanReport& report, const Ledger& ledger, std::string generator) {
  const PlanHeader& header = report.header;
  ReportPage page;
  page.generator = std::move(generator);
  page.kind = "plan";
  page.heading = header.model;
  page.facts = {Thousands(header.parameters) + " parameters"};
  if (header.trainable != header.parameters) {
    page.facts.push_back(Thousands(header.trainable) + " trained");
  }
  page.facts.insert(page.facts.end(), header.recipe.begin(), header.recipe.end());
  if (header.verdict) {
    page.summary.push_back({ToneOf(*header.verdict), VerdictSentence(*header.verdict)});
    const Verdict& verdict = *header.verdict;
    page.limit = PageRung{verdict.gpu.empty() ? "limit" : verdict.gpu, verdict.memory};
  }
  if (report.allocated > Bytes(0)) page.summary.push_back({Tone::kPlain, PeakSentence(report)});
  page.totals = header.native ? ArenaTotals(report) : Totals(report);
  for (const LadderRung& rung : report.ladder) {
    if (header.native) break;  // its ladder is the table of phases
    page.ladder.push_back({rung.name, rung.device});
  }
  page.ledgers = {{"", &ledger, header.parameters}};
  page.lists = {{"Assumed", header.assumptions}, {"Note", header.warnings}};
  return page;
}

}  // namespace headroom
