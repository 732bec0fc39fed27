// SPDX-License-Identifier: Apache-2.0
//
// StackClass: what a call stack says about the memory that was allocated or freed under it.
//
// Frames are read from the innermost out, and the first that decides wins: C++ autograd frames,
// optimizer steps and module calls before anything a user called a function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ledger/component.h"
#include "observe/frame_facts.h"
#include "observe/snapshot.h"

namespace headroom::observe {

// What the program is doing. The order is the order of a step.
enum class Stage : uint8_t {
  kUnknown,  // no frames
  kLoad,
  kData,
  kForward,
  kBackward,
  kClip,
  kOptimizer,
  kZeroGrad,
  kOther,  // frames, but none that tells
};
// "load", "data", "forward", …; "unknown".
std::string_view Name(Stage stage);

struct StackClass {
  Stage stage = Stage::kUnknown;
  FrameFacts facts = 0;    // of all frames together
  bool recompute = false;  // a forward run again by the backward pass: checkpointing
  Kind kind = Kind::kOther;
  std::string op;  // "aten::mm", "aten::_to_copy"; "" when no frame names one
  std::string
      module;  // "modeling_gpt2.py:274 > modeling_gpt2.py:185 > linear.py", "AddmmBackward0"
  // What a file of our own making says itself, with kind, op and module.
  std::optional<Component> stated;
  // Line of the innermost Module._apply, 0 for none: parameters and buffers are moved from two.
  uint32_t apply_line = 0;

  bool Has(FrameFact fact) const { return observe::Has(facts, fact); }
};

// Classes of all stacks of a snapshot.
class StackClasses {
 public:
  explicit StackClasses(const Snapshot& snapshot);
  const StackClass& operator[](StackId stack) const {
    return classes_[static_cast<uint32_t>(stack)];
  }
  // Whether events have stacks at all, and whether autograd's C++ frames are among them.
  bool any_frames() const { return any_frames_; }
  bool any_engine() const { return any_engine_; }

 private:
  std::vector<StackClass> classes_;
  bool any_engine_ = false;
  bool any_frames_ = false;
};

}  // namespace headroom::observe
