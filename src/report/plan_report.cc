// SPDX-License-Identifier: Apache-2.0
#include "report/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace headroom {
namespace {

Bytes& At(ComponentBytes& components, Component component) {
  return components[static_cast<size_t>(component)];
}

// Adds every block alive at the peak to its component, kind and module.
void AddLiveBlocks(const Ledger& ledger, PlanPeak& peak) {
  constexpr size_t kUnseen = SIZE_MAX;
  std::vector<size_t> position(ledger.modules().size(), kUnseen);
  for (const LiveBlock& block : ledger.LiveAt(ledger.peak_event())) {
    const MemoryEvent& event = ledger.events()[block.event];
    At(peak.components, event.component) += block.bytes;
    if (event.component == Component::kActivations) {
      peak.activation_kinds[static_cast<size_t>(event.kind)] += block.bytes;
    } else if (event.component == Component::kTemporaries) {
      peak.temporary_kinds[static_cast<size_t>(event.kind)] += block.bytes;
    }
    size_t& at = position[static_cast<size_t>(event.module)];
    if (at == kUnseen) {
      at = peak.modules.size();
      peak.modules.push_back({ledger.ModulePath(event.module), {}});
    }
    At(peak.modules[at].bytes, event.component) += block.bytes;
  }
}

PlanPeak BuildPeak(const Ledger& ledger) {
  PlanPeak peak;
  peak.allocated = ledger.peak_allocated();
  At(peak.components, Component::kCache) = ledger.peak_reserved() - ledger.peak_allocated();
  At(peak.components, Component::kContext) = ledger.context();
  if (ledger.events().empty()) return peak;
  const MemoryEvent& event = ledger.events()[ledger.peak_event()];
  peak.module = ledger.ModulePath(event.module);
  peak.op = ledger.OpName(event.op);
  if (const PhaseMark* phase = ledger.PhaseOf(ledger.peak_event())) {
    peak.phase = phase->name;
    peak.step = phase->step;
  } else if (!ledger.marks().empty()) {
    peak.step = ledger.marks().back().step;
  }
  AddLiveBlocks(ledger, peak);
  return peak;
}

// The highest reserved up to the end of each step; [0] is what comes before the first.
std::vector<Bytes> ReservedBySteps(const Ledger& ledger) {
  std::vector<Bytes> highest(1);
  Bytes reserved;
  Bytes so_far;
  int step = 0;
  for (const MemoryEvent& event : ledger.events()) {
    if (event.type == MemoryEvent::Type::kReserve) reserved += Bytes(event.bytes);
    so_far = std::max(so_far, reserved);
    if (event.type != MemoryEvent::Type::kMark) continue;
    const int mark_step = ledger.marks()[static_cast<size_t>(event.block)].step;
    if (mark_step != step) highest.emplace_back();
    highest.back() = so_far;
    step = mark_step;
  }
  highest.back() = so_far;
  return highest;
}

std::vector<LadderRung> BuildLadder(const Ledger& ledger, const PlanHeader& header) {
  const Bytes context =
      ledger.context_parts().empty() ? Bytes(0) : ledger.context_parts().front().bytes;
  std::vector<LadderRung> ladder = {{"CUDA context", context},
                                    {"model loaded", context + header.model_reserved}};
  const std::vector<Bytes> steps = ReservedBySteps(ledger);
  if (steps.size() < 2) return ladder;
  ladder.push_back({"step 1", steps[1] + ledger.context()});
  const auto steady = std::find(steps.begin() + 1, steps.end(), steps.back());
  const auto from = std::max<std::ptrdiff_t>(2, steady - steps.begin());
  if (steps.size() > 2) {
    ladder.push_back({fmt::format("steady from step {}", from), steps.back() + ledger.context()});
  }
  return ladder;
}

}  // namespace

PlanReport BuildPlanReport(const Ledger& ledger, PlanHeader header) {
  PlanReport report;
  report.allocated = ledger.peak_allocated();
  report.reserved = ledger.peak_reserved();
  report.device = ledger.peak_reserved() + ledger.context();
  report.peak = BuildPeak(ledger);
  report.ladder = BuildLadder(ledger, header);
  const std::vector<ComponentBytes> components = ledger.ComponentsAtMarks();
  for (size_t i = 0; i < ledger.marks().size(); ++i) {
    report.phases.push_back({ledger.marks()[i], components[i]});
  }
  report.header = std::move(header);
  return report;
}

std::string_view PhaseWords(std::string_view mark_name) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"train_begin", "loading the model"},  {"step_begin", "between steps"},
      {"forward_begin", "moving the batch"}, {"forward_end", "forward"},
      {"substep_end", "backward"},           {"backward_end", "backward"},
      {"evaluate_begin", "optimizer"},       {"evaluate_end", "evaluation"},
      {"optimizer_end", "optimizer step"},   {"step_end", "end of the step"},
  };
  for (const auto& [name, words] : kWords) {
    if (name == mark_name) return words;
  }
  return mark_name.empty() ? "after the last step" : mark_name;
}

}  // namespace headroom
