// SPDX-License-Identifier: Apache-2.0
#include "observe/classify.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "observe/refine_kinds.h"
#include "observe/size_match.h"

namespace headroom::observe {
namespace {

constexpr int64_t kMostWorkspaces = 4;  // one a thread and stream that multiplies matrices
constexpr int64_t kMostStates = 2;      // of an optimizer, a weight: Adam's two

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

int64_t CountOf(const SizeCounts& counts, int64_t size) {
  const auto found = counts.find(size);
  return found == counts.end() ? 0 : found->second;
}

class BlockClassifier {
 public:
  BlockClassifier(const Snapshot& snapshot, const Replay& replay,
                  std::span<const NamedSize> parameters)
      : snapshot_(snapshot), replay_(replay), sizes_(parameters), result_(snapshot) {}

  Classification Run() {
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

 private:
  const StackClass& StackOf(size_t i) const { return result_.stacks[replay_.blocks[i].stack]; }
  void Set(size_t i, Component component, Kind kind = Kind::kOther) {
    result_.blocks[i].component = component;
    result_.blocks[i].kind = kind;
    result_.blocks[i].explained = true;
  }

  void FindBufferLine();
  std::optional<Component> Category(size_t i) const;
  Stage StageOf(size_t i) const;
  void ByStackAndLife(size_t i);
  bool IsHiddenWorkspace(size_t i) const;
  void Load(size_t i);
  void Forward(size_t i);
  uint32_t NextOf(Stage stage, uint32_t event) const;
  void Backward(size_t i);
  void OptimizerStep(size_t i);
  void Other(size_t i);
  bool Outlives(const BlockLife& block, const PhaseSpan& span) const;
  bool IsOpen(const PhaseSpan& span) const;

  void BySize();
  void ByDeath(size_t i);
  void BeforeBySize();
  void GradientsBySize();
  void CompleteWeights(SizeCounts* weights) const;
  SizeCounts WeightSizes() const;
  void NameByTable();
  void Note();

  const Snapshot& snapshot_;
  const Replay& replay_;
  ParameterSizes sizes_;
  Classification result_;
  uint32_t buffer_line_ = 0;         // of Module._apply, 0 when no buffers were seen to move
  uint32_t first_freed_ = kNoEvent;  // where the first block that was freed was allocated
  std::vector<size_t> unplaced_;     // from before the trace, without a telling stack
  std::vector<size_t> in_doubt_;     // alive after a backward pass that broke off or has no stacks
};

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
  const uint16_t context = snapshot_.events.context[block.alloc_event];
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

// ---- Sizes ----

// How many weights of each size there are: from the model's table; else from what was seen to be
// loaded; else from the gradients of the backward pass that made most of them.
SizeCounts BlockClassifier::WeightSizes() const {
  if (!sizes_.empty()) return sizes_.Weights();
  SizeCounts loaded;
  std::map<const PhaseSpan*, SizeCounts> gradients;
  for (size_t i = 0; i < replay_.blocks.size(); ++i) {
    const BlockLife& block = replay_.blocks[i];
    const BlockClass& c = result_.blocks[i];
    if (!c.explained) continue;
    if (c.component == Component::kWeights) ++loaded[block.requested()];
    if (c.component == Component::kGradients && !block.from_before()) {
      ++gradients[result_.phases.At(block.alloc_event)][block.requested()];
    }
  }
  const SizeCounts* best = &loaded;
  for (const auto& [span, counts] : gradients) {
    if (counts.size() > best->size()) best = &counts;
  }
  return *best;
}

void BlockClassifier::BySize() {
  GradientsBySize();
  std::vector<size_t> never_freed;
  for (const size_t i : unplaced_) {
    if (replay_.blocks[i].free_event != kNoEvent) {
      ByDeath(i);
    } else {
      never_freed.push_back(i);
    }
  }
  unplaced_ = std::move(never_freed);
  if (!unplaced_.empty()) BeforeBySize();
}

// What a backward pass has left alive and no stack tells: a gradient is as large as a weight, and
// each weight has one at a time.
void BlockClassifier::GradientsBySize() {
  if (in_doubt_.empty()) return;
  const SizeCounts weights = WeightSizes();
  std::map<int, SizeCounts> left;
  for (const size_t i : in_doubt_) {
    const BlockLife& block = replay_.blocks[i];
    const PhaseSpan* span = result_.phases.At(block.alloc_event);
    // One set of gradients a step where phases are guessed, one a backward pass elsewhere.
    const int step = result_.phases.guessed ? span->step : static_cast<int>(span->first);
    SizeCounts& sizes = left.try_emplace(step, weights).first->second;
    const auto weight = sizes.find(block.requested());
    const bool as_weight = weight != sizes.end() && weight->second > 0;
    if (as_weight || (weights.empty() && block.free_event != kNoEvent && !IsOpen(*span))) {
      if (as_weight) --weight->second;
      Set(i, Component::kGradients);
    } else if (IsOpen(*span) || block.free_event != kNoEvent) {
      Set(i, Component::kTemporaries, StackOf(i).kind);
    }
  }
}

// A block from before the recording, by what freed it: backward frees what forward saved, and after
// the optimizer's step go the gradients.
void BlockClassifier::ByDeath(size_t i) {
  const PhaseSpan* span = result_.phases.At(replay_.blocks[i].free_event);
  if (span == nullptr) return;
  const bool within = replay_.blocks[i].free_event < span->end;
  switch (span->stage) {
    case Stage::kOptimizer:
      return Set(i, Component::kGradients);
    case Stage::kBackward:
      if (within) Set(i, Component::kActivations);
      return;
    case Stage::kForward:
      return Set(i, Component::kActivations);
    default:
      return;
  }
}

void BlockClassifier::BeforeBySize() {
  SizeCounts weights = WeightSizes();
  const bool no_sizes = weights.empty();
  const SizeCounts weights_seen = weights;
  if (!no_sizes && result_.phases.trains && sizes_.empty()) CompleteWeights(&weights);
  const auto take = [](SizeCounts* counts, int64_t size) {
    const auto found = counts->find(size);
    if (found == counts->end() || found->second == 0) return false;
    --found->second;
    return true;
  };
  SizeCounts blocks;
  for (const size_t i : unplaced_) ++blocks[replay_.blocks[i].requested()];
  // Sizes that are trained have at least one state a weight; a few blocks more are something else.
  SizeCounts states;
  for (const auto& [size, count] : weights) {
    if (blocks[size] >= 2 * count) states[size] = kMostStates * count;
  }
  for (const size_t i : unplaced_) {
    const int64_t size = replay_.blocks[i].requested();
    if (take(&weights, size)) {
      Set(i, Component::kWeights);
    } else if (result_.phases.trains && take(&states, size)) {
      Set(i, Component::kOptimizer);
    } else if (IsCublasWorkspace(size) &&
               blocks[size] - CountOf(weights_seen, size) <= kMostWorkspaces) {
      Set(i, Component::kWorkspace);
    } else if (sizes_.TakeBuffer(size)) {
      Set(i, Component::kInputs);
    } else if (no_sizes) {
      Set(i, Component::kWeights);
    }
  }
  if (no_sizes) {
    result_.notes.emplace_back(
        "blocks from before the recording that were never freed are taken for weights: give the "
        "model's config, or start recording before the model is loaded");
  }
}

// A recording that saw only part of a backward pass knows the gradients of some weights. What it
// knows gives the number of blocks a weight (three under Adam: itself and two states), and that
// number gives the weights of the other sizes.
void BlockClassifier::CompleteWeights(SizeCounts* weights) const {
  SizeCounts blocks;
  for (const size_t i : unplaced_) ++blocks[replay_.blocks[i].requested()];
  int64_t known = 0;
  int64_t blocks_of_known = 0;
  for (const auto& [size, count] : *weights) {
    const auto found = blocks.find(size);
    if (found == blocks.end()) continue;
    known += count;
    blocks_of_known += found->second;
  }
  if (known == 0) return;
  const int64_t ratio =
      std::clamp<int64_t>((blocks_of_known + known / 2) / known, 1, 1 + kMostStates);
  for (const auto& [size, count] : blocks) {
    if (IsCublasWorkspace(size) && count <= kMostWorkspaces) continue;
    int64_t& of_size = (*weights)[size];
    of_size = std::max(of_size, count / ratio);
  }
}

void BlockClassifier::NameByTable() {
  if (sizes_.empty()) return;
  for (const NamedSize& parameter : sizes_.parameters()) result_.names.push_back(parameter.name);
  ParameterSizes::Namer weights = sizes_.Names(ParameterSizes::Order::kForward);
  ParameterSizes::Namer gradients = sizes_.Names(ParameterSizes::Order::kBackward);
  ParameterSizes::Namer states = sizes_.Names(ParameterSizes::Order::kForward);
  for (size_t i = 0; i < replay_.blocks.size(); ++i) {
    BlockClass& c = result_.blocks[i];
    const int64_t size = replay_.blocks[i].requested();
    if (!c.explained) continue;
    if (c.component == Component::kWeights) c.name = weights.Next(size);
    if (c.component == Component::kGradients) c.name = gradients.Next(size);
    if (c.component == Component::kOptimizer) c.name = states.Next(size);
  }
}

void BlockClassifier::Note() {
  std::vector<std::string>& notes = result_.notes;
  if (replay_.events.count == 0) {
    notes.emplace_back(
        "the file has no history: torch.cuda.memory._record_memory_history(max_entries=1000000) "
        "before the model is loaded would have recorded when and by what memory was taken");
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

}  // namespace

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
