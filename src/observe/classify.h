// SPDX-License-Identifier: Apache-2.0
//
// Classify: what every block of a replay was for.
//
// Three witnesses, asked in this order: the call stack (what allocated it), the life (what outlives
// the backward pass is a gradient, what outlives the optimizer's step is its state), and the size
// (a block as large as a parameter). What none of them explains is counted, never hidden: such
// blocks stand in the ledger as temporaries under the op "unexplained".
//
//   alloc under AddmmBackward0, alive when the backward pass ends   -> gradients
//   alloc under AddmmBackward0, freed before                        -> temporaries
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "ledger/component.h"
#include "ledger/ledger.h"
#include "observe/phases.h"
#include "observe/replay.h"
#include "observe/snapshot.h"
#include "observe/stack_class.h"

namespace headroom::observe {

// A parameter as the model's table names it; `bytes` in the type it is stored in.
struct NamedSize {
  std::string name;
  Bytes bytes;
  bool is_buffer = false;
};

struct BlockClass {
  Component component = Component::kTemporaries;
  Kind kind = Kind::kOther;
  Stage stage = Stage::kUnknown;
  bool explained : 1 = false;
  // Alive when the backward pass after it began: what autograd kept, or what happened to live.
  bool saved : 1 = false;
  bool stated : 1 = false;  // by the file itself: nothing is to be refined
  uint32_t name = 0;  // position in Classification::names, 0 for none: the parameter it belongs to
};

// A long recording has millions.
static_assert(sizeof(BlockClass) == 8);

struct Classification {
  std::vector<BlockClass> blocks;  // as Replay::blocks
  std::vector<std::string> names;  // names[0] is ""
  Phases phases;
  StackClasses stacks;
  // What the reader should know about how this came about, one line each.
  std::vector<std::string> notes;

  explicit Classification(const Snapshot& snapshot) : stacks(snapshot) {}
};

// Whether a block is alive after `event`; kNoEvent is the time before the trace.
bool IsAliveAfter(const BlockLife& block, uint32_t event);

// `parameters` may be empty; with it blocks get names, and recordings without stacks an
// explanation.
Classification Classify(const Snapshot& snapshot, const Replay& replay,
                        std::span<const NamedSize> parameters = {});

// Bytes per component after `event`, and how much of it is unexplained.
struct ObservedTotals {
  ComponentBytes handed_out{};  // what memory_allocated() counts, by component
  ComponentBytes requested{};   // what was asked for
  Bytes allocated;
  Bytes unexplained;
};
ObservedTotals TotalsAt(const Replay& replay, const Classification& classes, uint32_t event);

// The recording as a ledger: blocks from before the trace first, then every event with the marks of
// the phases. Modules are places in the model's code, names of parameters where they are known.
Ledger BuildLedger(const Snapshot& snapshot, const Replay& replay, const Classification& classes);

}  // namespace headroom::observe
