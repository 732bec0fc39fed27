// SPDX-License-Identifier: Apache-2.0
//
// The verdict on a recording, in sentences.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "report/explain_report.h"
#include "report/sections.h"

namespace headroom {
namespace {

// Parts below this share of the whole are summed as "the rest".
constexpr double kSmallestPart = 0.04;
// Fragmentation is worth a sentence from this share of what is reserved.
constexpr double kSmallestFragmentation = 0.05;

// "activations 2,555.8 MiB (cast 952.0 MiB the largest part), optimizer 2,558.7 MiB and …"
std::string MadeOf(const PlanReport& run) {
  std::vector<std::pair<Bytes, Component>> parts;
  for (int i = 0; i < kAllocatedComponentCount; ++i) {
    parts.emplace_back(run.peak.components[static_cast<size_t>(i)], static_cast<Component>(i));
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> texts;
  Bytes rest = run.allocated;
  for (const auto& [bytes, component] : parts) {
    if (bytes == Bytes(0) || Share(bytes, run.allocated) < kSmallestPart) continue;
    std::string text = Format("{} {}", Name(component), FormatMiB(bytes));
    const bool has_kinds =
        component == Component::kActivations || component == Component::kTemporaries;
    const KindBytes& kinds =
        component == Component::kActivations ? run.peak.activation_kinds : run.peak.temporary_kinds;
    const auto largest = std::max_element(kinds.begin() + 1, kinds.end());
    if (has_kinds && Share(*largest, bytes) > 0.2) {
      text += Format(" ({} of it {})", FormatMiB(*largest),
                     KindWords(static_cast<Kind>(largest - kinds.begin())));
    }
    texts.push_back(std::move(text));
    rest -= bytes;
  }
  if (rest > Bytes(0)) texts.push_back(Format("{} of all else", FormatMiB(rest)));
  return Format("{}", fmt::join(texts, ", "));
}

std::string PeakVerdict(const ExplainReport& report) {
  const PlanReport& run = report.run;
  if (!report.has_history) {
    return Format("{} allocated when the file was written: {}.", FormatMiB(run.allocated),
                  MadeOf(run));
  }
  const PlanPeak& peak = run.peak;
  std::string when = std::string(PhaseWords(peak.phase));
  if (peak.step > 0) when = Format("step {}, {}", peak.step, when);
  return Format("Memory peaks at {} in {}: {}.", FormatMiB(run.allocated), when, MadeOf(run));
}

std::vector<std::string> FailureVerdict(const ExplainReport& report, const FailureReport& failure) {
  std::string when = failure.phase;
  if (failure.step > 0) when = Format("step {}, {}", failure.step, failure.phase);
  const std::string what = failure.kind == Kind::kOther ? std::string(Name(failure.component))
                                                        : Format("{} ({})", KindWords(failure.kind),
                                                                 Name(failure.component));
  std::vector<std::string> sentences = {
      Format("Out of memory in {}: {} asked for, for {}, with {} allocated and {} reserved.", when,
             FormatMiB(failure.requested), what, FormatMiB(failure.allocated),
             FormatMiB(failure.reserved))};
  if (failure.device_free >= failure.requested) {
    sentences.push_back(
        Format("The device had {} free: not its size but a limit on this process "
               "(set_per_process_memory_fraction) refused it.",
               FormatMiB(failure.device_free)));
  }
  if (failure.of_its_kind > Bytes(0)) {
    sentences.push_back(
        Format("{} tipped it over: {} of them allocated, {} with this request.",
               failure.kind == Kind::kLogitsLoss ? "Logits and loss"
                                                 : "Memory for " + KindWords(failure.kind),
               FormatMiB(failure.of_its_kind), FormatMiB(failure.of_its_kind + failure.requested)));
  }
  sentences.push_back(Format("Most of what was allocated before: {}.", MadeOf(report.run)));
  return sentences;
}

const AllocatorTrial* TrialNamed(const ExplainReport& report, std::string_view name) {
  for (const AllocatorTrial& trial : report.trials) {
    if (trial.name == name) return &trial;
  }
  return nullptr;
}

std::string FragmentationVerdict(const ExplainReport& report) {
  const AllocatorTrial* native = TrialNamed(report, "native");
  const AllocatorTrial* expandable = TrialNamed(report, "expandable_segments:True");
  if (native == nullptr || expandable == nullptr) return "";
  const Bytes saves = native->reserved - expandable->reserved;
  if (expandable->serves && native->serves && *expandable->serves && !*native->serves) {
    return "With PYTORCH_ALLOC_CONF=expandable_segments:True the request that failed would have "
           "been served.";
  }
  if (Share(saves, report.run.reserved) < kSmallestFragmentation) return "";
  return Format(
      "{} of what is reserved is lost to fragmentation: PYTORCH_ALLOC_CONF="
      "expandable_segments:True wins it back.",
      FormatMiB(saves));
}

}  // namespace

std::vector<std::string> VerdictSentences(const ExplainReport& report) {
  std::vector<std::string> sentences;
  if (report.empty()) return {"The file holds no memory: neither a segment nor an event."};
  if (report.failure) {
    sentences = FailureVerdict(report, *report.failure);
  } else {
    sentences.push_back(PeakVerdict(report));
  }
  if (const std::vector<Remedy> remedies = FindRemedies(report); !remedies.empty()) {
    sentences.push_back(Format("The largest avoidable part is up to {} of {}: {}.",
                               FormatMiB(remedies[0].saves), remedies[0].part, remedies[0].change));
  }
  if (!report.growth.empty()) {
    const GrowthRow& first = report.growth.front();
    sentences.push_back(Format("Memory grows by {} a step at {}: something keeps it.",
                               FormatMiB(first.per_step), first.place));
  }
  if (std::string text = FragmentationVerdict(report); !text.empty()) {
    sentences.push_back(std::move(text));
  }
  if (Share(report.unexplained, report.run.allocated) >= 0.02) {
    sentences.push_back(Format("{} of the peak is unexplained.",
                               Percent(Share(report.unexplained, report.run.allocated))));
  }
  return sentences;
}

}  // namespace headroom
