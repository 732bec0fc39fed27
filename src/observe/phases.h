// SPDX-License-Identifier: Apache-2.0
//
// Phases: a trace cut into load, forward, backward and optimizer, step by step.
//
// Call stacks say what an allocation is part of; the ranges that PyTorch records around every
// optimizer step say it even without stacks. Where neither does, a step's forward ends where its
// memory is highest.
//
//   load | forward | backward | forward | backward | optimizer | forward …
//   step 1 ......................................................| step 2
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/replay.h"
#include "observe/snapshot.h"
#include "observe/stack_class.h"

namespace headroom::observe {

// Events first … end - 1 of the trace, all of one stage: kLoad, kForward, kBackward or kOptimizer.
struct PhaseSpan {
  Stage stage = Stage::kUnknown;
  int step = 0;  // from 1; 0 before the first forward
  uint32_t first = 0;
  uint32_t end = 0;
};

// A mark of hf_memory.jsonl (see ledger.h), set before this event.
struct PhaseCut {
  std::string name;
  int step = 0;
  uint32_t event = 0;
};

struct Phases {
  std::vector<PhaseSpan> spans;  // in order, without gaps between backward and optimizer
  std::vector<PhaseCut> cuts;    // in order
  int steps = 0;                 // that an optimizer step ended
  bool trains = false;           // some backward was seen
  bool stated = false;           // by the file itself, an export of ours
  bool guessed = false;          // no stacks: forward and backward were told apart by the peak
  // The span in which the trace breaks off: the last, unless an optimizer step closed it.
  const PhaseSpan* open() const;
  // The span of an event, or the one before it; null before the first.
  const PhaseSpan* At(uint32_t event) const;
};

Phases FindPhases(const Snapshot& snapshot, const Replay& replay, const StackClasses& stacks);

}  // namespace headroom::observe
