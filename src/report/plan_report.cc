// SPDX-License-Identifier: Apache-2.0
#include "report/plan_report.h"

#include <algorithm>
#include <utility>

#include "base/format.h"

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

// The highest reserved up to the mark `name`.
Bytes ReservedUpTo(const Ledger& ledger, std::string_view name) {
  Bytes reserved;
  Bytes highest;
  for (const MemoryEvent& event : ledger.events()) {
    if (event.type == MemoryEvent::Type::kReserve) reserved += Bytes(event.bytes);
    highest = std::max(highest, reserved);
    if (event.type == MemoryEvent::Type::kMark &&
        ledger.marks()[static_cast<size_t>(event.block)].name == name) {
      break;
    }
  }
  return highest;
}

const PhaseMark* FindMark(const Ledger& ledger, std::string_view name) {
  const auto found = std::ranges::find(ledger.marks(), name, &PhaseMark::name);
  return found == ledger.marks().end() ? nullptr : &*found;
}

std::vector<LadderRung> GenerationLadder(const Ledger& ledger, Bytes context) {
  return {{"CUDA context", context},
          {"weights loaded", context + ReservedUpTo(ledger, "load")},
          {"prefill", ledger.context() + ReservedUpTo(ledger, "prefill")},
          {"decode", ledger.context() + ledger.peak_reserved()}};
}

std::optional<GenerationFigures> BuildGeneration(const Ledger& ledger, const PlanHeader& header) {
  if (!header.cache_per_token) return std::nullopt;
  GenerationFigures figures{};
  figures.cache_per_token = *header.cache_per_token;
  if (const PhaseMark* load = FindMark(ledger, "load")) {
    figures.load_peak = load->peak_allocated;
    figures.weights = load->allocated;
  }
  if (const PhaseMark* prefill = FindMark(ledger, "prefill")) {
    figures.prefill_peak = prefill->peak_allocated;
  }
  const PhaseMark* decode = FindMark(ledger, "decode");
  if (decode == nullptr) return figures;
  figures.decode_peak = decode->peak_allocated;
  figures.cache = ledger.ComponentsAt(decode->event)[static_cast<size_t>(Component::kKvCache)];
  return figures;
}

std::vector<LadderRung> BuildLadder(const Ledger& ledger, const PlanHeader& header) {
  const Bytes context =
      ledger.context_parts().empty() ? Bytes(0) : ledger.context_parts().front().bytes;
  if (header.cache_per_token) return GenerationLadder(ledger, context);
  std::vector<LadderRung> ladder = {{"CUDA context", context},
                                    {"model loaded", context + header.model_reserved}};
  const std::vector<Bytes> steps = ReservedBySteps(ledger);
  if (steps.size() < 2) return ladder;
  ladder.push_back({"step 1", steps[1] + ledger.context()});
  const auto steady = std::find(steps.begin() + 1, steps.end(), steps.back());
  const auto from = std::max<std::ptrdiff_t>(2, steady - steps.begin());
  if (steps.size() > 2) {
    ladder.push_back({Format("steady from step {}", from), steps.back() + ledger.context()});
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
  report.generation = BuildGeneration(ledger, header);
  const std::vector<ComponentBytes> components = ledger.ComponentsAtMarks();
  for (size_t i = 0; i < ledger.marks().size(); ++i) {
    report.phases.push_back({ledger.marks()[i], components[i]});
  }
  report.header = std::move(header);
  return report;
}

std::string_view PhaseWords(std::string_view mark_name) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"train_begin", "loading the model"},
      {"step_begin", "between steps"},
      {"forward_begin", "moving the batch"},
      {"forward_end", "forward"},
      {"substep_end", "backward"},
      {"backward_end", "backward"},
      {"evaluate_begin", "optimizer"},
      {"evaluate_end", "evaluation"},
      {"optimizer_end", "optimizer step"},
      {"step_end", "end of the step"},
      {"load", "loading the weights"},
      {"prefill", "reading the prompt"},
      {"decode", "decoding"},
  };
  for (const auto& [name, words] : kWords) {
    if (name == mark_name) return words;
  }
  return mark_name.empty() ? "after the last step" : mark_name;
}

}  // namespace headroom
