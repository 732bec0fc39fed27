// SPDX-License-Identifier: Apache-2.0
//
// BlockClassifier: the three witnesses of classify.h, asked block by block. Private to Classify:
// classify.cc asks the stack and the life, classify_sizes.cc the size.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "observe/classify.h"
#include "observe/size_match.h"

namespace headroom::observe {

class BlockClassifier {
 public:
  BlockClassifier(const Snapshot& snapshot, const Replay& replay,
                  std::span<const NamedSize> parameters)
      : snapshot_(snapshot), replay_(replay), sizes_(parameters), result_(snapshot) {}

  Classification Run();

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
  void State(size_t i);
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

}  // namespace headroom::observe
