// SPDX-License-Identifier: Apache-2.0
#include "report/explain_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/format.h"
#include "report/sections.h"

namespace headroom {
namespace {

using Align = TextTable::Align;

constexpr size_t kMostHolders = 12;
constexpr size_t kMostModules = 10;
constexpr size_t kMostGrowth = 8;
// A run of many steps shows its first and its last.
constexpr size_t kFirstSteps = 4;
constexpr size_t kLastSteps = 4;

std::string Title(const ExplainReport& report, const TextStyle& style) {
  std::string facts;
  for (const std::string& fact : report.facts) {
    facts += (facts.empty() ? "" : std::string(Sign(style, " · ", ", "))) + fact;
  }
  return Paint(style, Colour::kBold, report.name) + '\n' + Paragraph(style, "", facts);
}

std::string VerdictText(const ExplainReport& report, const TextStyle& style) {
  const std::string text = Format("{}", fmt::join(VerdictSentences(report), " "));
  const Colour colour = report.failure ? Colour::kRed : Colour::kBold;
  return '\n' + PaintLines(style, colour, Paragraph(style, "", text));
}

std::string Totals(const ExplainReport& report, const TextStyle& style) {
  const PlanReport& run = report.run;
  const std::string_view when = report.has_history ? "the tensors, at the peak" : "the tensors";
  return '\n' + TotalLine(style, "allocated", run.allocated, when) +
         TotalLine(style, "reserved", run.reserved,
                   Format("+ {} cached by the allocator", FormatMiB(run.reserved - run.allocated)));
}

std::string Peak(const ExplainReport& report, const TextStyle& style) {
  const PlanPeak& peak = report.run.peak;
  std::string out = Heading(
      style, report.has_history ? PeakSentence(peak) : "What was allocated when it was written");
  out += Margin() + StackedBar(style, peak.components, style.width - 4) + "\n\n";
  out += ComponentTable(report.run, style);
  if (report.unexplained == Bytes(0)) return out;
  return out + Paragraph(style, Margin(),
                         Format("{} ({}) of it, counted as temporaries, is unexplained.",
                                FormatMiB(report.unexplained),
                                Percent(Share(report.unexplained, report.run.allocated))));
}

std::string MaybeMiB(Bytes size) { return size == Bytes(0) ? "" : MiBNumber(size); }

std::string Steps(const ExplainReport& report, const TextStyle& style) {
  if (report.steps.empty()) return "";
  TextTable table(
      {{"step"}, {"forward"}, {"backward"}, {"optimizer"}, {"at its end"}, {"reserved"}});
  const size_t count = report.steps.size();
  for (size_t i = 0; i < count; ++i) {
    if (count > kFirstSteps + kLastSteps + 1 && i == kFirstSteps) {
      table.Add({"...", "", "", "", "", ""});
      i = count - kLastSteps;
    }
    const StepRow& row = report.steps[i];
    table.Add({Thousands(row.step), MaybeMiB(row.forward), MaybeMiB(row.backward),
               MaybeMiB(row.optimizer), MaybeMiB(row.end), MaybeMiB(row.reserved)});
  }
  return Heading(style, "Peak of every phase, MiB allocated") + table.Text(style);
}

std::string KindOf(const HolderRow& row) {
  return row.kind == Kind::kOther ? std::string(Name(row.component))
                                  : Format("{}: {}", Name(row.component), KindWords(row.kind));
}

std::string Holders(const std::vector<HolderRow>& rows, std::string_view heading,
                    std::string_view place, size_t most, const TextStyle& style) {
  if (rows.empty()) return "";
  TextTable table({{"MiB"}, {"blocks"}, {"what", Align::kLeft}, {place, Align::kLeft}});
  Bytes rest;
  int64_t rest_blocks = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i < most) {
      table.Add(
          {MiBNumber(rows[i].bytes), Thousands(rows[i].blocks), KindOf(rows[i]), rows[i].place});
    } else {
      rest += rows[i].bytes;
      rest_blocks += rows[i].blocks;
    }
  }
  if (rest_blocks > 0) {
    table.Add({MiBNumber(rest), Thousands(rest_blocks),
               Format("{} more", Thousands(static_cast<int64_t>(rows.size() - most))), ""});
  }
  return Heading(style, heading) + table.Text(style);
}

std::string GrowthTable(const ExplainReport& report, const TextStyle& style) {
  if (report.growth.empty()) {
    if (report.steps.size() < 3) return "";
    return Heading(style, "Growth from step to step") + Margin() +
           "nothing holds more after every step than after the one before\n";
  }
  TextTable table({{"MiB a step"}, {"steps"}, {"what", Align::kLeft}, {"where", Align::kLeft}});
  for (size_t i = 0; i < std::min(kMostGrowth, report.growth.size()); ++i) {
    const GrowthRow& row = report.growth[i];
    table.Add({MiBNumber(row.per_step), Thousands(row.steps), std::string(Name(row.component)),
               row.place});
  }
  return Heading(style, "Growth from step to step") + table.Text(style);
}

std::string Failure(const ExplainReport& report, const TextStyle& style) {
  if (!report.failure) return "";
  const FailureReport& failure = *report.failure;
  std::string out = Heading(style, Format("The request that failed, at {}", failure.place));
  out += TotalLine(style, "asked for", failure.requested,
                   KindOf({"", failure.component, failure.kind, Bytes(0), 0}));
  out += TotalLine(style, "allocated", failure.allocated, "at that moment");
  out += TotalLine(style, "reserved", failure.reserved, "after cached blocks were given back");
  out += TotalLine(style, "free", failure.device_free, "as the device reported it");
  return out + Holders(failure.holders, "Who held the memory then", "where", kMostHolders, style);
}

std::string Stays(const ExplainReport& report, const TextStyle& style) {
  const FinalMemory& end = report.final_memory;
  if (end.reserved == Bytes(0) && end.allocated == Bytes(0)) return "";
  TextTable table({{"MiB"}, {"what", Align::kLeft}, {"freed by", Align::kLeft, true}});
  for (int i = 0; i <= static_cast<int>(Component::kCache); ++i) {
    const Bytes size = end.components[static_cast<size_t>(i)];
    if (size == Bytes(0)) continue;
    const auto component = static_cast<Component>(i);
    table.Add({MiBNumber(size), std::string(Name(component)), std::string(FreedBy(component))});
  }
  std::string out = Heading(style, "What stays at the end of the recording") + table.Text(style);
  std::string text = ReleasableSentence(end);
  text +=
      " accelerate's release_memory(model, optimizer) does del, gc.collect() and empty_cache(); "
      "the CUDA context ends with the process.";
  if (end.pending_free > Bytes(0)) {
    text += Format(" {} are freed and wait for another stream.", FormatMiB(end.pending_free));
  }
  return out + Paragraph(style, Margin(), text);
}

std::string Fragmentation(const ExplainReport& report, const TextStyle& style) {
  const FinalMemory& end = report.final_memory;
  std::string out = Heading(style, "Fragmentation");
  TextTable table({{"MiB"}, {"", Align::kLeft, true}});
  table.Add({MiBNumber(report.run.reserved - report.run.allocated),
             "reserved beyond what is allocated, peak against peak"});
  if (end.reserved > Bytes(0)) {
    table.Add({MiBNumber(end.allocated - end.requested),
               "given beyond what was asked for, at the "
               "end"});
    table.Add({MiBNumber(end.largest_free), "largest free block at the end"});
  }
  out += table.Text(style);
  if (report.trials.empty()) return out;
  TextTable trials(
      {{"MiB"}, {"reserved when these requests are played through", Align::kLeft, true}});
  trials.Add({MiBNumber(report.run.reserved), "(as recorded)"});
  for (const AllocatorTrial& trial : report.trials) {
    std::string name = trial.name;
    if (trial.serves) name += *trial.serves ? ": serves the request" : ": fails too";
    if (report.failure && !trial.serves) name += ": serves the request where so much is allowed";
    trials.Add({MiBNumber(trial.reserved), std::move(name)});
  }
  return out + '\n' + trials.Text(style);
}

std::string Remedies(const ExplainReport& report, const TextStyle& style) {
  std::vector<std::string> lines;
  for (const Remedy& remedy : FindRemedies(report)) {
    lines.push_back(
        Format("up to {} of {}: {}", FormatMiB(remedy.saves), remedy.part, remedy.change));
  }
  return lines.empty() ? "" : Heading(style, "What would lower the peak") + Bullets(style, lines);
}

std::string Sections(const ExplainReport& report, const TextStyle& style) {
  std::string out =
      Totals(report, style) + Failure(report, style) + Peak(report, style) + Steps(report, style);
  out += Holders(report.holders,
                 report.has_history ? "Largest holders at the peak" : "Largest holders", "where",
                 kMostHolders, style);
  out += Holders(report.modules, "By place in the model", "module", kMostModules, style);
  out += GrowthTable(report, style) + Stays(report, style) + Fragmentation(report, style) +
         Remedies(report, style);
  return out;
}

}  // namespace

std::string ExplainText(const ExplainReport& report, const TextStyle& style) {
  std::string out = Title(report, style) + VerdictText(report, style);
  if (!report.empty()) out += Sections(report, style);
  if (!report.notes.empty()) out += Heading(style, "Note") + Bullets(style, report.notes);
  return out;
}

}  // namespace headroom
