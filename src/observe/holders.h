// SPDX-License-Identifier: Apache-2.0
//
// Holders: who holds the memory, by place in the code; and who holds more after every step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/classify.h"

namespace headroom::observe {

// Blocks of one component that were allocated under one call stack.
struct Holder {
  StackId stack{};
  Component component = Component::kTemporaries;
  Kind kind = Kind::kOther;
  Bytes bytes;
  int64_t blocks = 0;
};

// What is alive after `event` (kNoEvent: before the trace), largest first.
std::vector<Holder> HoldersAt(const Replay& replay, const Classification& classes, uint32_t event);

// A stack whose blocks grow from one step's end to the next, in every step but the first, in which
// state is created.
struct Growth {
  StackId stack{};
  Component component = Component::kTemporaries;
  std::vector<Bytes> after_step;  // alive at the end of each step, from the second on
  Bytes per_step() const;         // on average
};

// Largest growth first; empty when fewer than three steps were recorded.
std::vector<Growth> FindGrowth(const Replay& replay, const Classification& classes);

// "modeling_gpt2.py:702 forward < trainer.py:2674 train": the innermost frames worth reading, at
// most `frames` of them, C++ ones only where there is no Python. "no stack" for the empty one.
std::string DescribeStack(const Snapshot& snapshot, StackId stack, int frames = 3);

// What the allocator was asked before event `end`, in order: for playing the recording through
// another allocator.
struct AllocatorStep {
  uint32_t block = 0;  // position in Replay::blocks
  bool is_alloc = true;
};
std::vector<AllocatorStep> AllocatorSteps(const Replay& replay, uint32_t end = kNoEvent);

}  // namespace headroom::observe
