// SPDX-License-Identifier: Apache-2.0
#include "report/oom_report.h"

#include <fmt/format.h>

#include "base/format.h"
#include "report/explain_report.h"
#include "report/plan_text.h"
#include "report/sections.h"

namespace headroom {
namespace {

constexpr size_t kMostOffers = 6;

std::string Figures(const OomReport& report, const TextStyle& style) {
  std::string out;
  for (const OomFigure& figure : OomFigures(report)) {
    const std::string name = figure.process        ? Format("  {}", *figure.process)
                             : figure.sign.empty() ? std::string(figure.name)
                                                   : Format("{} {}", figure.sign, figure.name);
    out += TotalLine(style, name, figure.size, figure.meaning);
  }
  return out.empty() ? "" : '\n' + out;
}

// The changes that suffice alone; where none does, those that do together.
std::vector<const FitChange*> Offered(const FitReport& offers) {
  std::vector<const FitChange*> offered;
  for (const auto* list : {&offers.alone, &offers.together}) {
    if (!offered.empty()) break;
    for (const FitChange& change : *list) {
      if (change.fits && offered.size() < kMostOffers) offered.push_back(&change);
    }
  }
  return offered;
}

std::string OfferSection(const FitReport& offers, const TextStyle& style) {
  std::string out = Heading(style, "What headroom fit offers");
  TextTable table({{"needs"},
                   {"saves"},
                   {"step time"},
                   {"effect", TextTable::Align::kLeft},
                   {"change", TextTable::Align::kLeft}});
  for (const FitChange* change : Offered(offers)) {
    table.Add({FormatBytes(change->needed), FormatBytes(change->saved),
               Format("{:+.0f} %", change->time_change * 100), change->effect,
               Format("{}", fmt::join(change->parts, " + "))});
  }
  if (!table.empty()) out += table.Text(style);
  out += Paragraph(style, Margin(), OomOfferSentence(offers));
  if (!offers.best) return out;
  const FitBest& best = *offers.best;
  for (const std::string* line : {&best.command, &best.environment, &best.training_arguments}) {
    if (!line->empty()) out += Paragraph(style, Margin() + Margin(), *line);
  }
  return out;
}

std::string PlanSection(const OomReport& report, const TextStyle& style) {
  if (!report.plan) return "";
  const OomPlan& plan = *report.plan;
  std::string out = Heading(style, Format("What headroom plan says of {}", plan.model));
  out += Paragraph(style, Margin(), Format("{}", fmt::join(plan.recipe, ", ")));
  out += TotalLine(style, "allocated", plan.allocated, "at the peak, were there no limit");
  out += TotalLine(style, "reserved", plan.reserved, "likewise");
  out += TotalLine(style, "cap", plan.cap, "the most that could be reserved, from the message");
  out += Paragraph(style, Margin(), OomPlanVerdict(report));
  return plan.offers ? out + OfferSection(*plan.offers, style) : out;
}

}  // namespace

std::vector<OomFigure> OomFigures(const OomReport& report) {
  std::vector<OomFigure> figures;
  const auto add = [&](std::string_view sign, std::string_view name, std::optional<Bytes> size,
                       std::string_view meaning) {
    if (size) figures.push_back({sign, name, *size, meaning});
  };
  add("", "asked for", report.requested, "the request that failed");
  add("", "allocated", report.allocated, "the tensors");
  add("+", "cache", report.cache, "reserved by PyTorch and free, or too small to use");
  add("=", "reserved", report.reserved, "PyTorch's segments");
  add("+", "context", report.context, "CUDA context, libraries, other allocators");
  add("=", "process", report.process, "all that this process holds");
  add("+", "others", report.others, "other processes and the driver");
  for (const auto& [pid, bytes] : report.processes) {
    figures.push_back({"", "", bytes, "of it, the process of this number", pid});
  }
  add("+", "free", report.free, "as the device reported it");
  add("=", "device", report.capacity, "all of it");
  add("", "allowed", report.allowed, "what this process may reserve");
  return figures;
}

std::string OomVerdict(const OomReport& report) {
  std::string text = "Out of memory";
  if (!report.phase.empty()) text += Format(" in the {} phase", report.phase);
  if (!report.place.empty()) text += Format(" at {}", report.place);
  if (report.kind != Kind::kOther && report.guess.empty())
    text += Format(", for {}", KindWords(report.kind));
  if (report.requested) text += Format(", asking for {}", FormatBytes(*report.requested));
  text += '.';
  if (!report.guess.empty()) text += " " + report.guess;
  for (const std::string& cause : report.causes) text += " " + cause;
  return text;
}

std::string OomPlanVerdict(const OomReport& report) {
  const OomPlan& plan = *report.plan;
  if (plan.verdict.fits) {
    return Format(
        "The plan fits with {} to spare: the run was not this recipe, or something "
        "that the plan does not know (evaluation, another process, a leak) came on "
        "top.",
        FormatBytes(plan.verdict.headroom()));
  }
  std::string text = VerdictSentence(plan.verdict);
  if (plan.same_request && (plan.same_phase || report.phase.empty())) {
    text += " The plan reproduces the failure.";
  } else if (plan.same_phase) {
    text += " The phase is that of the failure.";
  }
  return text;
}

std::string OomOfferSentence(const FitReport& offers) {
  if (!offers.best) return "Nothing that was tried makes it fit.";
  std::string text = Format("The cheapest that fits: {}.", fmt::join(offers.best->parts, " + "));
  if (offers.largest_batch && offers.largest_batch->value) {
    text += Format(" The largest batch that fits without a change: {}.",
                   Thousands(*offers.largest_batch->value));
  }
  return text;
}

std::string OomText(const OomReport& report, const TextStyle& style) {
  std::string facts = report.wording.empty() ? "" : "worded as by " + report.wording;
  if (report.device) {
    facts += Format("{}device {}", facts.empty() ? "" : ", ", *report.device);
  }
  if (report.occurrences > 1) {
    facts += Format("{}the last of {} messages", facts.empty() ? "" : ", ", report.occurrences);
  }
  std::string out = Paint(style, Colour::kBold, report.name) + '\n';
  if (!facts.empty()) out += Paragraph(style, "", facts);
  out += '\n' + PaintLines(style, Colour::kRed, Paragraph(style, "", OomVerdict(report)));
  out += Figures(report, style);
  if (!report.code.empty()) out += Heading(style, "The line") + Margin() + report.code + '\n';
  out += PlanSection(report, style);
  if (!report.next.empty()) out += Heading(style, "What to do") + Bullets(style, report.next);
  return out;
}

}  // namespace headroom
