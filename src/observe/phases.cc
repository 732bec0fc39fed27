// SPDX-License-Identifier: Apache-2.0
#include "observe/phases.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace headroom::observe {
namespace {

struct Window {
  uint32_t first = 0;
  uint32_t end = 0;
};

bool IsPhase(Stage stage) {
  return stage == Stage::kLoad || stage == Stage::kForward || stage == Stage::kBackward ||
         stage == Stage::kOptimizer;
}

// The stage that a mark closes.
std::optional<Stage> StageBefore(std::string_view mark) {
  constexpr std::pair<std::string_view, Stage> kStages[] = {
      {"train_begin", Stage::kLoad},      {"load", Stage::kLoad},
      {"forward_end", Stage::kForward},   {"prefill", Stage::kForward},
      {"decode", Stage::kForward},        {"substep_end", Stage::kBackward},
      {"backward_end", Stage::kBackward}, {"optimizer_end", Stage::kOptimizer}};
  for (const auto& [name, stage] : kStages) {
    if (name == mark) return stage;
  }
  return std::nullopt;
}

class Finder {
 public:
  Finder(const Snapshot& snapshot, const Replay& replay, const StackClasses& stacks)
      : snapshot_(snapshot), replay_(replay), stacks_(stacks), events_(snapshot.events) {}

  Phases Find() {
    if (FindStatedPhases()) return std::move(phases_);
    FindOptimizerWindows();
    if (stacks_.any_frames()) {
      SpansFromStacks();
    } else {
      SpansFromPeaks();
    }
    NumberSteps();
    Cut();
    return std::move(phases_);
  }

 private:
  bool FindStatedPhases();
  void FindOptimizerWindows();
  uint32_t EventAt(uint64_t time_us) const;
  void SpansFromStacks();
  std::optional<Stage> StageOfEvent(uint32_t event, Stage current) const;
  void SpansFromPeaks();
  std::vector<int64_t> AllocatedByEvent() const;
  void NumberSteps();
  void Cut();
  void CutBeforeForward(size_t span, uint32_t data);
  void AddCut(std::string_view name, int step, uint32_t event) {
    phases_.cuts.push_back({std::string(name), step, event});
  }

  const Snapshot& snapshot_;
  const Replay& replay_;
  const StackClasses& stacks_;
  const EventTable& events_;
  std::vector<Window> windows_;  // of optimizer steps
  Phases phases_;
};

uint32_t Finder::EventAt(uint64_t time_us) const {
  return events_.times().FindFrom(time_us, replay_.events.first, replay_.events.end());
}

// "Headroom.phase#2.forward_end": `plan --export-snapshot` says where its phases end.
bool Finder::FindStatedPhases() {
  constexpr std::string_view kPrefix = "Headroom.phase#";
  uint32_t first = replay_.events.first;
  for (const Annotation& annotation : snapshot_.annotations) {
    std::string_view name = snapshot_.strings.Get(annotation.name);
    if (annotation.is_start || !name.starts_with(kPrefix)) continue;
    name.remove_prefix(kPrefix.size());
    int step = 0;
    const auto [rest, failure] = std::from_chars(name.data(), name.data() + name.size(), step);
    const auto digits = static_cast<size_t>(rest - name.data());
    if (failure != std::errc() || step < 0 || digits >= name.size()) continue;
    name.remove_prefix(digits + 1);
    if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") != std::string_view::npos) continue;
    const uint32_t end = EventAt(annotation.time_us);
    AddCut(name, step, end);
    if (const std::optional<Stage> stage = StageBefore(name); stage && end > first) {
      phases_.spans.push_back({*stage, step, first, end});
      phases_.trains |= *stage == Stage::kBackward;
    }
    if (name == "optimizer_end") phases_.steps = std::max(phases_.steps, step);
    first = end;
  }
  phases_.stated = !phases_.cuts.empty();
  return phases_.stated;
}

// "Optimizer.step#AdamW.step", START and END (torch/optim/optimizer.py, profile_hook_step, 2.11).
void Finder::FindOptimizerWindows() {
  const Range range = replay_.events;
  if (range.count == 0 || events_.times()[range.end() - 1] == 0) return;
  bool on_device = false;
  for (const Annotation& annotation : snapshot_.annotations) {
    on_device |= annotation.device == replay_.device;
  }
  uint32_t start = kNoEvent;  // of the step that is open
  for (const Annotation& annotation : snapshot_.annotations) {
    if (on_device && annotation.device != replay_.device) continue;
    if (!snapshot_.strings.Get(annotation.name).starts_with("Optimizer.step")) continue;
    if (annotation.is_start) {
      start = EventAt(annotation.time_us);
    } else {
      // A ring that wrapped may have lost the start, and then what follows it as well.
      const uint32_t end = EventAt(annotation.time_us + 1);
      if (end > range.first) windows_.push_back({start == kNoEvent ? range.first : start, end});
      start = kNoEvent;
    }
  }
  if (start < range.end()) windows_.push_back({start, range.end()});
  // A step that changed no memory still ends a step, at the event it stands before.
  std::erase_if(windows_, [](const Window& w) { return w.first > w.end; });
}

std::optional<Stage> Finder::StageOfEvent(uint32_t event, Stage current) const {
  const StackClass& stack = stacks_[events_[event].stack];
  if (events_[event].action != Action::kAlloc) {
    // A free prolongs what it is part of; it begins nothing.
    if (stack.stage == current && IsPhase(current)) return current;
    return std::nullopt;
  }
  if (IsPhase(stack.stage)) return stack.stage;
  // Accelerator.backward and Tensor.backward make a scalar or two before the engine starts.
  const bool enters = stack.stage == Stage::kOther && stack.Has(FrameFact::kBackwardCall);
  if (enters && current == Stage::kForward) return Stage::kBackward;
  // Recordings of Python stacks only show nothing of the backward pass, which C++ threads run.
  const bool in_step = current == Stage::kForward || current == Stage::kBackward;
  if (stack.stage == Stage::kUnknown && !stacks_.any_engine() && in_step) return Stage::kBackward;
  return std::nullopt;
}

void Finder::SpansFromStacks() {
  std::vector<PhaseSpan>& spans = phases_.spans;
  size_t window = 0;
  for (uint32_t event = replay_.events.first; event < replay_.events.end(); ++event) {
    while (window < windows_.size() && windows_[window].end <= event) {
      const Window& passed = windows_[window++];
      if (passed.first == passed.end) {
        spans.push_back({Stage::kOptimizer, 0, passed.first, passed.end});
      }
    }
    const Stage current = spans.empty() ? Stage::kUnknown : spans.back().stage;
    std::optional<Stage> stage;
    if (window < windows_.size() && event >= windows_[window].first) {
      stage = Stage::kOptimizer;
    } else {
      stage = StageOfEvent(event, current);
    }
    if (!stage) continue;
    if (*stage == current) {
      spans.back().end = event + 1;
    } else {
      spans.push_back({*stage, 0, event, event + 1});
    }
  }
  if (stacks_.any_engine()) return;
  // Frees have no stack of their own then: a backward pass lasts until something else is seen.
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].stage != Stage::kBackward) continue;
    spans[i].end = i + 1 < spans.size() ? spans[i + 1].first : replay_.events.end();
  }
}

std::vector<int64_t> Finder::AllocatedByEvent() const {
  const uint32_t first = replay_.events.first;
  std::vector<int64_t> allocated(replay_.events.count + 1, 0);
  for (const BlockLife& block : replay_.blocks) {
    if (!block.from_before()) allocated[block.alloc_event - first] += block.bytes;
    if (block.free_event != kNoEvent) allocated[block.free_event - first] -= block.bytes;
  }
  for (size_t i = 1; i < allocated.size(); ++i) allocated[i] += allocated[i - 1];
  return allocated;
}

// Memory grows through the forward pass and falls through the backward pass.
void Finder::SpansFromPeaks() {
  if (windows_.empty()) return;
  phases_.guessed = true;
  const std::vector<int64_t> allocated = AllocatedByEvent();
  uint32_t start = replay_.events.first;
  for (const Window& window : windows_) {
    if (window.first > start) {
      const auto first = allocated.begin() + (start - replay_.events.first);
      const auto end = allocated.begin() + (window.first - replay_.events.first);
      const uint32_t peak = start + static_cast<uint32_t>(std::max_element(first, end) - first) + 1;
      phases_.spans.push_back({Stage::kForward, 0, start, peak});
      phases_.spans.push_back({Stage::kBackward, 0, peak, window.first});
    }
    phases_.spans.push_back({Stage::kOptimizer, 0, window.first, window.end});
    start = window.end;
  }
  if (start < replay_.events.end()) {
    phases_.spans.push_back({Stage::kForward, 0, start, replay_.events.end()});
  }
}

void Finder::NumberSteps() {
  bool begun = false;
  for (PhaseSpan& span : phases_.spans) {
    begun |= span.stage == Stage::kForward || span.stage == Stage::kBackward;
    if (span.stage == Stage::kBackward) phases_.trains = true;
    if (!begun || span.stage == Stage::kLoad) continue;
    span.step = phases_.steps + 1;
    if (span.stage == Stage::kOptimizer) ++phases_.steps;
  }
}

void Finder::Cut() {
  uint32_t data = kNoEvent;  // the first batch that came to the device since the last span
  uint32_t event = replay_.events.first;
  for (size_t i = 0; i < phases_.spans.size(); ++i) {
    const PhaseSpan& span = phases_.spans[i];
    for (; event < span.first; ++event) {
      const bool batch = events_[event].action == Action::kAlloc &&
                         stacks_[events_[event].stack].stage == Stage::kData;
      if (batch && data == kNoEvent) data = event;
    }
    const Stage before = i == 0 ? Stage::kUnknown : phases_.spans[i - 1].stage;
    switch (span.stage) {
      case Stage::kForward:
        CutBeforeForward(i, std::min(data, span.first));
        break;
      case Stage::kBackward:
        if (before == Stage::kForward) AddCut("forward_end", span.step, span.first);
        break;
      case Stage::kOptimizer:
        if (before == Stage::kBackward) AddCut("backward_end", span.step, span.first);
        if (span.step > 0) AddCut("optimizer_end", span.step, span.end);
        break;
      default:
        break;
    }
    data = kNoEvent;
    event = std::max(event, span.end);
  }
  const bool closed = !phases_.spans.empty() && phases_.spans.back().stage == Stage::kOptimizer;
  if (closed && phases_.steps > 0) AddCut("step_end", phases_.steps, replay_.events.end());
}

void Finder::CutBeforeForward(size_t span, uint32_t data) {
  const PhaseSpan& forward = phases_.spans[span];
  const Stage before = span == 0 ? Stage::kUnknown : phases_.spans[span - 1].stage;
  switch (before) {
    case Stage::kBackward:
      AddCut("substep_end", forward.step, data);
      break;
    case Stage::kOptimizer:
      AddCut("step_end", forward.step - 1, data);
      AddCut("step_begin", forward.step, forward.first);
      break;
    default:
      if (forward.step == 1) {
        AddCut("train_begin", 0, data);
        AddCut("step_begin", 1, forward.first);
      }
  }
  AddCut("forward_begin", forward.step, forward.first);
}

}  // namespace

const PhaseSpan* Phases::open() const {
  const bool closed = spans.empty() || spans.back().stage == Stage::kOptimizer;
  return closed ? nullptr : &spans.back();
}

const PhaseSpan* Phases::At(uint32_t event) const {
  const auto after =
      std::upper_bound(spans.begin(), spans.end(), event,
                       [](uint32_t at, const PhaseSpan& span) { return at < span.first; });
  return after == spans.begin() ? nullptr : &*std::prev(after);
}

Phases FindPhases(const Snapshot& snapshot, const Replay& replay, const StackClasses& stacks) {
  return Finder(snapshot, replay, stacks).Find();
}

}  // namespace headroom::observe
