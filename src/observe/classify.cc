// SPDX-License-Identifier: Apache-2.0
#include "observe/classify.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "observe/block_classifier.h"
#include "observe/refine_kinds.h"

namespace headroom::observe {
namespace {

// What a file says itself: torch.profiler's categories (_profile_to_snapshot,
// torch/cuda/_memory_viz.py and torch/profiler/_memory_profiler.py, 2.11), or our own names, which
// `plan --export-snapshot` writes.
std::optional<Component> ComponentOfCategory(std::string_view category) {
  constexpr std::pair<std::string_view, Component> kCategories[] = {
      {"parameter", Component::kWeights},          {"gradient", Component::kGradients},
      {"optimizer_state", Component::kOptimizer},  {"activation", Component::kActivations},
      {"temporary", Component::kTemporaries},      {"input", Component::kInputs},
      {"autograd_detail", Component::kTemporaries}};
  for (const auto& [name, component] : kCategories) {
    if (name == category) return component;
  }
  return ParseComponent(category);
}

}  // namespace

Classification BlockClassifier::Run() {
  result_.phases = FindPhases(snapshot_, replay_, result_.stacks);
  result_.names.emplace_back();
  result_.blocks.resize(replay_.blocks.size());
  FindBufferLine();
  for (size_t i = 0; i < replay_.blocks.size(); ++i) ByStackAndLife(i);
  BySize();
  NameByTable();
  RefineKinds(replay_, result_.blocks);
  Note();
  return std::move(result_);
}

// Module._apply moves its parameters first and its buffers last, so of the lines from which memory
// was moved the last one is the buffers' (torch/nn/modules/module.py, every version).
void BlockClassifier::FindBufferLine() {
  uint32_t least = 0;
  uint32_t most = 0;
  for (const BlockLife& block : replay_.blocks) {
    const bool freed = !block.from_before() && block.free_event != kNoEvent;
    if (freed && first_freed_ == kNoEvent) first_freed_ = block.alloc_event;
    const StackClass& stack = result_.stacks[block.stack];
    if (stack.stage != Stage::kLoad || stack.apply_line == 0) continue;
    least = least == 0 ? stack.apply_line : std::min(least, stack.apply_line);
    most = std::max(most, stack.apply_line);
  }
  if (most > least) buffer_line_ = most;
}

std::optional<Component> BlockClassifier::Category(size_t i) const {
  const BlockLife& block = replay_.blocks[i];
  if (block.from_before()) return std::nullopt;
  const uint16_t context = snapshot_.events[block.alloc_event].context;
  const StringId category = snapshot_.contexts[context].category;
  if (category == StringId()) return std::nullopt;
  return ComponentOfCategory(snapshot_.strings.Get(category));
}

Stage BlockClassifier::StageOf(size_t i) const {
  const Stage stage = StackOf(i).stage;
  const BlockLife& block = replay_.blocks[i];
  if (stage != Stage::kUnknown || block.from_before()) return stage;
  if (result_.stacks.any_engine()) return stage;
  const PhaseSpan* span = result_.phases.At(block.alloc_event);
  if (span == nullptr || block.alloc_event >= span->end) return stage;
  // Without stacks loading looks like the first forward pass, but for what is never freed.
  const bool stays = block.free_event == kNoEvent;
  if (result_.phases.guessed && span->stage == Stage::kForward && span->step == 1 && stays) {
    return Stage::kLoad;
  }
  return span->stage;
}

void BlockClassifier::ByStackAndLife(size_t i) {
  const StackClass& stack = StackOf(i);
  const Stage stage = StageOf(i);
  result_.blocks[i].stage = stage;
  if (stack.stated) return State(i);
  if (const std::optional<Component> component = Category(i)) return Set(i, *component);
  if (stack.Has(FrameFact::kWorkspace) || IsHiddenWorkspace(i)) {
    return Set(i, Component::kWorkspace);
  }
  if (stack.Has(FrameFact::kReducer)) return Set(i, Component::kGradients);
  switch (stage) {
    case Stage::kLoad:
      return Load(i);
    case Stage::kData:
      return Set(i, Component::kInputs);
    case Stage::kForward:
      return Forward(i);
    case Stage::kBackward:
      return Backward(i);
    case Stage::kClip:
      // The scaler's own state is created on its first use.
      if (stack.Has(FrameFact::kOptimizerState)) return Set(i, Component::kOptimizer);
      return Set(i, Component::kTemporaries, Kind::kForeach);
    case Stage::kOptimizer:
      return OptimizerStep(i);
    case Stage::kZeroGrad:
      return Set(i, Component::kTemporaries, Kind::kForeach);
    case Stage::kUnknown:
    case Stage::kOther:
      return Other(i);
  }
}

void BlockClassifier::State(size_t i) {
  const StackClass& stack = StackOf(i);
  const BlockLife& block = replay_.blocks[i];
  Set(i, *stack.stated, stack.kind);
  result_.blocks[i].stated = true;
  const PhaseSpan* span = block.from_before() ? nullptr : result_.phases.At(block.alloc_event);
  if (span != nullptr && block.alloc_event < span->end) result_.blocks[i].stage = span->stage;
}

bool BlockClassifier::Outlives(const BlockLife& block, const PhaseSpan& span) const {
  return block.free_event == kNoEvent || block.free_event >= span.end;
}

bool BlockClassifier::IsOpen(const PhaseSpan& span) const {
  const PhaseSpan* open = result_.phases.open();
  if (open != &span) return false;
  const bool failed = !replay_.ooms.empty() && replay_.ooms.back().event >= span.first;
  return failed || span.end == replay_.events.end();
}

// Without C++ frames a workspace looks like what the first matrix product allocates; but it stays.
// Without any frames it also has to come after the weights: after the first block that was freed.
bool BlockClassifier::IsHiddenWorkspace(size_t i) const {
  const BlockLife& block = replay_.blocks[i];
  const Stage stage = result_.blocks[i].stage;
  if (result_.stacks.any_engine() || block.from_before() || block.free_event != kNoEvent) {
    return false;
  }
  if (!IsCublasWorkspace(block.requested()) || result_.phases.steps == 0) return false;
  if (stage == Stage::kForward || stage == Stage::kBackward) return true;
  return result_.phases.guessed && stage == Stage::kLoad && block.alloc_event > first_freed_;
}

void BlockClassifier::Load(size_t i) {
  const BlockLife& block = replay_.blocks[i];
  const std::vector<PhaseSpan>& spans = result_.phases.spans;
  const auto forward = std::find_if(spans.begin(), spans.end(), [](const PhaseSpan& span) {
    return span.stage == Stage::kForward;
  });
  // What a conversion leaves behind before the model is used was never its weight.
  const bool used = forward == spans.end() || block.from_before() ||
                    block.alloc_event > forward->first || block.free_event >= forward->first;
  if (!used) return Set(i, Component::kTemporaries);
  const bool buffer = buffer_line_ != 0 && StackOf(i).apply_line == buffer_line_;
  Set(i, buffer ? Component::kInputs : Component::kWeights);
}

void BlockClassifier::Forward(size_t i) {
  const BlockLife& block = replay_.blocks[i];
  const StackClass& stack = StackOf(i);
  if (stack.Has(FrameFact::kMask)) return Set(i, Component::kInputs, Kind::kPosition);
  if (stack.Has(FrameFact::kKvCache) && !result_.phases.trains) {
    return Set(i, Component::kKvCache);
  }
  if (block.from_before()) return Set(i, Component::kActivations, stack.kind);
  const uint32_t backward = NextOf(Stage::kBackward, block.alloc_event);
  const uint32_t step = NextOf(Stage::kOptimizer, block.alloc_event);
  // No activation lives to see the optimizer: the guess at where forward ended was late.
  if (result_.phases.guessed && step != replay_.events.end() && block.free_event >= step) {
    in_doubt_.push_back(i);
    return;
  }
  Set(i, Component::kActivations, stack.kind);
  result_.blocks[i].saved = block.free_event >= backward;
}

// Where the next phase of this stage begins, or the end of the trace.
uint32_t BlockClassifier::NextOf(Stage stage, uint32_t event) const {
  const std::vector<PhaseSpan>& spans = result_.phases.spans;
  auto next = std::lower_bound(spans.begin(), spans.end(), event,
                               [](const PhaseSpan& span, uint32_t at) { return span.first <= at; });
  while (next != spans.end() && next->stage != stage) ++next;
  return next == spans.end() ? replay_.events.end() : next->first;
}

void BlockClassifier::Backward(size_t i) {
  const BlockLife& block = replay_.blocks[i];
  const StackClass& stack = StackOf(i);
  if (stack.recompute) return Set(i, Component::kActivations, stack.kind);
  if (stack.Has(FrameFact::kAccumulateGrad)) return Set(i, Component::kGradients);
  if (block.from_before()) return Set(i, Component::kGradients);
  const PhaseSpan* span = result_.phases.At(block.alloc_event);
  if (span == nullptr || span->stage != Stage::kBackward) return Other(i);
  if (!Outlives(block, *span)) return Set(i, Component::kTemporaries, stack.kind);
  if (IsOpen(*span) || !result_.stacks.any_engine()) {
    in_doubt_.push_back(i);
    return;
  }
  Set(i, Component::kGradients);
}

void BlockClassifier::OptimizerStep(size_t i) {
  const BlockLife& block = replay_.blocks[i];
  const bool state = StackOf(i).Has(FrameFact::kOptimizerState);
  const PhaseSpan* span = block.from_before() ? nullptr : result_.phases.At(block.alloc_event);
  const bool stays = span == nullptr ? block.from_before() : Outlives(block, *span);
  // In a step that failed, temporaries are still alive: only what was made as state counts.
  const bool failed = !replay_.ooms.empty() && span != nullptr &&
                      span == &result_.phases.spans.back() && block.free_event == kNoEvent;
  if (stays && (state || !failed)) return Set(i, Component::kOptimizer);
  Set(i, Component::kTemporaries, Kind::kForeach);
}

void BlockClassifier::Other(size_t i) {
  const BlockLife& block = replay_.blocks[i];
  if (block.from_before()) {
    unplaced_.push_back(i);
    return;
  }
  const StackClass& stack = StackOf(i);
  // Predictions that an evaluation gathers on the device.
  if (stack.Has(FrameFact::kEvaluation)) {
    return Set(i, Component::kActivations, Kind::kLogitsLoss);
  }
  if (result_.blocks[i].stage == Stage::kUnknown || block.free_event == kNoEvent) return;
  // Made by a line of Python between the phases and dropped within a step: scratch.
  const PhaseSpan* born = result_.phases.At(block.alloc_event);
  const PhaseSpan* died = result_.phases.At(block.free_event);
  if ((died == nullptr ? 0 : died->step) - (born == nullptr ? 0 : born->step) <= 1) {
    Set(i, Component::kTemporaries);
  }
}

void BlockClassifier::Note() {
  std::vector<std::string>& notes = result_.notes;
  if (replay_.events.count == 0) {
    notes.emplace_back(
        "the file has no history: torch.cuda.memory._record_memory_history(max_entries=1000000) "
        "before the model is loaded would have recorded when and by what memory was taken");
  } else if (result_.phases.stated) {
    notes.emplace_back("an export of headroom plan: predicted, not recorded");
  } else if (!result_.stacks.any_frames()) {
    notes.emplace_back(
        "no call stacks were recorded: forward and backward are told apart by where memory peaks; "
        "_record_memory_history(stacks=\"all\") records them");
  } else if (!result_.stacks.any_engine() && result_.phases.trains) {
    notes.emplace_back(
        "only Python stacks were recorded: what the backward pass allocates has none; "
        "_record_memory_history(stacks=\"all\") records it");
  }
  if (snapshot_.settings && snapshot_.settings->trace_overflowed) {
    notes.emplace_back(
        "the recording is a ring that overflowed: its start is lost; a larger max_entries keeps "
        "it");
  }
}

bool IsAliveAfter(const BlockLife& block, uint32_t event) {
  if (event == kNoEvent) return block.from_before();
  const bool born = block.from_before() || block.alloc_event <= event;
  return born && (block.free_event == kNoEvent || block.free_event > event);
}

Classification Classify(const Snapshot& snapshot, const Replay& replay,
                        std::span<const NamedSize> parameters) {
  return BlockClassifier(snapshot, replay, parameters).Run();
}

ObservedTotals TotalsAt(const Replay& replay, const Classification& classes, uint32_t event) {
  ObservedTotals totals;
  for (size_t i = 0; i < replay.blocks.size(); ++i) {
    const BlockLife& block = replay.blocks[i];
    if (!IsAliveAfter(block, event)) continue;
    const auto component = static_cast<size_t>(classes.blocks[i].component);
    totals.handed_out[component] += Bytes(block.bytes);
    totals.requested[component] += Bytes(block.requested());
    totals.allocated += Bytes(block.bytes);
    if (!classes.blocks[i].explained) totals.unexplained += Bytes(block.bytes);
  }
  return totals;
}

}  // namespace headroom::observe
