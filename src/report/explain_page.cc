// SPDX-License-Identifier: Apache-2.0
#include "report/explain_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "report/sections.h"

namespace headroom {
namespace {

// A snapshot can have thousands of stacks; a page shows those that weigh.
constexpr size_t kMostRows = 60;
constexpr size_t kMostSteps = 400;

PageTable HolderTable(std::string heading, std::string place, const std::vector<HolderRow>& rows,
                      Bytes whole) {
  PageTable table;
  table.heading = std::move(heading);
  table.columns = {std::move(place), "component", "kind", "blocks", "size", "share"};
  Bytes rest;
  int64_t rest_blocks = 0;
  for (const HolderRow& row : rows) {
    if (table.rows.size() == kMostRows) {
      rest += row.bytes;
      rest_blocks += row.blocks;
      continue;
    }
    table.rows.push_back({row.place, row.component, std::string(Name(row.kind)), row.blocks,
                          row.bytes, Share(row.bytes, whole)});
  }
  if (rest_blocks > 0) {
    table.totals.push_back(
        {std::string("all others"), {}, {}, rest_blocks, rest, Share(rest, whole)});
  }
  return table;
}

PageTable StepTable(const std::vector<StepRow>& steps) {
  PageTable table;
  table.heading = "Peak of every phase";
  table.note = "The highest allocated within the phase.";
  table.columns = {
      "step", "forward", "backward", "optimizer", "allocated at its end", "reserved at its end"};
  for (const StepRow& row : steps) {
    if (table.rows.size() == kMostSteps) {
      table.note += Format(" The first {} of {} steps.", kMostSteps, steps.size());
      break;
    }
    table.rows.push_back(
        {int64_t{row.step}, row.forward, row.backward, row.optimizer, row.end, row.reserved});
  }
  return table;
}

PageTable GrowthTable(const std::vector<GrowthRow>& growth) {
  PageTable table;
  table.heading = "Growth from step to step";
  table.note = "Places that hold more after every step than after the one before.";
  table.columns = {"where", "component", "steps", "a step"};
  for (const GrowthRow& row : growth) {
    if (table.rows.size() == kMostRows) break;
    table.rows.push_back({row.place, row.component, row.steps, row.per_step});
  }
  return table;
}

PageTable RemedyTable(const ExplainReport& report) {
  PageTable table;
  table.heading = "What would lower the peak";
  table.columns = {"change", "what it avoids", "at most"};
  for (const Remedy& remedy : FindRemedies(report)) {
    table.rows.push_back({remedy.change, remedy.part, remedy.saves});
  }
  return table;
}

PageTable StaysTable(const FinalMemory& end) {
  PageTable table;
  table.heading = "What stays at the end of the recording";
  table.note = ReleasableSentence(end);
  table.columns = {"component", "freed by", "size"};
  for (int i = 0; i <= static_cast<int>(Component::kCache); ++i) {
    const Bytes size = end.components[static_cast<size_t>(i)];
    if (size == Bytes(0)) continue;
    const auto component = static_cast<Component>(i);
    table.rows.push_back({component, std::string(FreedBy(component)), size});
  }
  return table;
}

PageTable AllocatorTable(const ExplainReport& report) {
  PageTable table;
  if (report.trials.empty()) return table;
  table.heading = "The same requests under other allocator settings";
  table.note = Format(
      "{} are reserved beyond what is allocated, peak against peak; the largest free block at the "
      "end has {}.",
      FormatMiB(report.run.reserved - report.run.allocated),
      FormatMiB(report.final_memory.largest_free));
  table.columns = {"allocator", "reserved at its peak"};
  if (report.failure) table.columns.emplace_back("serves the request that failed");
  const auto add = [&](std::string name, Bytes reserved, std::string serves) {
    table.rows.push_back({std::move(name), reserved});
    if (report.failure) table.rows.back().emplace_back(std::move(serves));
  };
  add("as recorded", report.run.reserved, "no");
  for (const AllocatorTrial& trial : report.trials) {
    add(trial.name, trial.reserved,
        !trial.serves   ? "where so much is allowed"
        : *trial.serves ? "yes"
                        : "no");
  }
  return table;
}

void AddFailure(const FailureReport& failure, ReportPage& page) {
  page.totals.push_back(
      {"asked for", failure.requested, Format("the request that failed, at {}", failure.place)});
  page.totals.push_back({"free", failure.device_free, "as the device reported it"});
  page.tables.push_back(HolderTable("Who held the memory when the request failed", "where",
                                    failure.holders, failure.allocated));
}

PageTable FigureTable(const OomReport& report) {
  PageTable table;
  table.heading = "What the message says";
  table.columns = {"figure", "meaning", "size"};
  for (const OomFigure& figure : OomFigures(report)) {
    if (figure.process) {
      table.rows.push_back(
          {Format("process {}", *figure.process), std::string("another"), figure.size});
    } else {
      table.rows.push_back({std::string(figure.name), std::string(figure.meaning), figure.size});
    }
  }
  return table;
}

PageTable OfferTable(const FitReport& offers) {
  PageTable table;
  table.heading = "What headroom fit offers";
  table.note = OomOfferSentence(offers);
  if (offers.best) table.note += " " + offers.best->command;
  table.columns = {"change", "effect", "fits", "needs", "saves"};
  for (const auto* list : {&offers.alone, &offers.together}) {
    for (const FitChange& change : *list) {
      table.rows.push_back({Format("{}", fmt::join(change.parts, " + ")), change.effect,
                            std::string(change.fits ? "yes" : "no"), change.needed, change.saved});
    }
  }
  return table;
}

}  // namespace

ReportPage ExplainPage(const ExplainReport& report, const Ledger& ledger, std::string generator) {
  const PlanReport& run = report.run;
  ReportPage page;
  page.generator = std::move(generator);
  page.kind = "explain";
  page.heading = report.name;
  page.facts = report.facts;
  for (std::string& sentence : VerdictSentences(report)) {
    const bool first = page.summary.empty();
    page.summary.push_back(
        {first && report.failure ? Tone::kBad : Tone::kPlain, std::move(sentence)});
  }
  page.totals = {
      {"allocated", run.allocated, report.has_history ? "the tensors, at the peak" : "the tensors"},
      {"reserved", run.reserved,
       Format("+ {} cached by the allocator", FormatMiB(run.reserved - run.allocated))}};
  if (report.unexplained > Bytes(0)) {
    page.totals.push_back({"unexplained", report.unexplained, "of it, counted as temporaries"});
  }
  if (report.failure) AddFailure(*report.failure, page);
  page.ledgers = {{"", &ledger, run.header.parameters}};
  page.tables.push_back(RemedyTable(report));
  page.tables.push_back(HolderTable(
      report.has_history ? "Largest holders at the peak, by stack" : "Largest holders, by stack",
      "where", report.holders, run.allocated));
  page.tables.push_back(
      HolderTable("By place in the model", "module", report.modules, run.allocated));
  page.tables.push_back(StepTable(report.steps));
  page.tables.push_back(GrowthTable(report.growth));
  page.tables.push_back(StaysTable(report.final_memory));
  page.tables.push_back(AllocatorTable(report));
  std::erase_if(page.tables, [](const PageTable& table) { return table.rows.empty(); });
  page.lists = {{"Note", report.notes}};
  return page;
}

ReportPage OomPage(const OomReport& report, std::string generator) {
  ReportPage page;
  page.generator = std::move(generator);
  page.kind = "explain";
  page.heading = report.name;
  if (!report.wording.empty()) page.facts.push_back("worded as by " + report.wording);
  if (report.device) page.facts.push_back(Format("device {}", *report.device));
  if (report.occurrences > 1) {
    page.facts.push_back(Format("the last of {} messages", report.occurrences));
  }
  page.summary = {{Tone::kBad, OomVerdict(report)}};
  if (report.plan) page.summary.push_back({Tone::kPlain, OomPlanVerdict(report)});
  page.tables.push_back(FigureTable(report));
  if (report.plan && report.plan->offers) page.tables.push_back(OfferTable(*report.plan->offers));
  std::erase_if(page.tables, [](const PageTable& table) { return table.rows.empty(); });
  page.lists = {{"What to do", report.next}};
  if (!report.code.empty()) page.lists.push_back({"The line", {report.code}});
  page.lists.push_back({"The message", {report.message}});
  return page;
}

}  // namespace headroom
