// SPDX-License-Identifier: Apache-2.0
//
// The half of BlockClassifier that goes by sizes: for blocks that no stack and no life explains.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "observe/block_classifier.h"

namespace headroom::observe {
namespace {

constexpr int64_t kMostWorkspaces = 4;  // one a thread and stream that multiplies matrices
constexpr int64_t kMostStates = 2;      // of an optimizer, a weight: Adam's two

int64_t CountOf(const SizeCounts& counts, int64_t size) {
  const auto found = counts.find(size);
  return found == counts.end() ? 0 : found->second;
}

}  // namespace

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

}  // namespace headroom::observe
