// SPDX-License-Identifier: Apache-2.0
//
// ExplainReport: everything that is said about a recorded run, as values; text and JSON are written
// from it.
//
// The run itself is a PlanReport, folded from the recording's ledger as a plan is folded from the
// predicted one. A recording does not see what lies outside the allocator, so its device total is
// what is reserved. The rest is what only a recording can tell: who held the memory, what it left
// behind, what other allocator settings would have given, and where it failed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "ledger/component.h"
#include "report/plan_report.h"

namespace headroom {

// Blocks of one component and kind that one place of the code or one module allocated.
struct HolderRow {
  std::string place;  // "modeling_gpt2.py:702 forward < trainer.py:2674 train"; "no stack"
  Component component = Component::kTemporaries;
  Kind kind = Kind::kOther;
  Bytes bytes;
  int64_t blocks = 0;
};

// Peaks of allocated within one step; 0 for a phase the recording does not hold.
struct StepRow {
  int step = 0;
  Bytes forward;
  Bytes backward;
  Bytes optimizer;
  Bytes end;       // allocated when the step ends
  Bytes reserved;  // likewise
};

// A place whose blocks grow in every step.
struct GrowthRow {
  std::string place;
  Component component = Component::kTemporaries;
  Bytes per_step;
  int64_t steps = 0;
};

// The recorded requests, played through a model of an allocator.
struct AllocatorTrial {
  std::string name;  // "native", "expandable_segments:True"
  Bytes reserved;    // at its peak
  // After a failure: whether the request that failed would have been served; unset where that
  // depends on a limit that the recording does not tell.
  std::optional<bool> serves;
};

// An allocation that failed.
struct FailureReport {
  Bytes requested;
  Bytes device_free;  // what the device reported free
  Bytes allocated;    // when it failed
  Bytes reserved;     // likewise, after cached blocks were given back
  int step = 0;
  std::string phase;  // "forward", …
  std::string place;  // as in HolderRow
  Component component = Component::kTemporaries;
  Kind kind = Kind::kOther;
  Bytes of_its_kind;  // allocated of that kind when it failed; 0 for kOther
  std::vector<HolderRow> holders;
};

// What stands when the recording ends.
struct FinalMemory {
  ComponentBytes components{};  // cache is what is reserved and not allocated
  Bytes allocated;
  Bytes reserved;
  Bytes requested;     // of allocated, what was asked for
  Bytes pending_free;  // freed, still used by another stream
  Bytes largest_free;  // the largest request that needs no new segment
  Bytes releasable;    // what empty_cache() would give back
  std::vector<HolderRow> holders;
};

// A part of the peak that a change of the recipe avoids.
struct Remedy {
  Bytes saves;         // at most
  std::string part;    // "materialised attention scores"
  std::string change;  // "attn_implementation=\"sdpa\" computes attention without them"
};

struct ExplainReport {
  std::string name;                // of the file
  std::vector<std::string> facts;  // "PyTorch 2.10 or 2.11", "12,345 events", …
  bool has_history = false;
  bool trains = false;
  int device = 0;
  PlanReport run;
  Bytes unexplained;  // of the peak
  // What was asked for, by component: at the peak, when the last backward pass ended, at the end.
  // Blocks hold somewhat more, which the components of the run count.
  ComponentBytes requested_at_peak{};
  ComponentBytes requested_after_backward{};
  ComponentBytes requested_at_end{};
  std::vector<HolderRow> holders;  // at the peak, largest first
  std::vector<HolderRow> modules;  // likewise, by place in the model
  std::vector<StepRow> steps;
  std::vector<GrowthRow> growth;
  std::vector<AllocatorTrial> trials;
  std::optional<FailureReport> failure;
  FinalMemory final_memory;
  std::vector<std::string> notes;

  // Whether the file tells of no byte at all.
  bool empty() const {
    return !failure && !has_history && run.reserved == Bytes(0) &&
           final_memory.reserved == Bytes(0);
  }
};

// One row a step from the marks of the run.
std::vector<StepRow> StepRows(const PlanReport& run);

// The change that avoids the largest part of the peak first; changes that would save less than a
// fiftieth of it are left out.
std::vector<Remedy> FindRemedies(const ExplainReport& report);

// "empty_cache() would give back 64.0 MiB now; …": what of the cache could go.
std::string ReleasableSentence(const FinalMemory& end);

// What frees memory of this component, in a user's words.
std::string_view FreedBy(Component component);

// "attention scores": a kind in a sentence.
std::string KindWords(Kind kind);

// The verdict in words: the peak or the failure, when, what it is made of, and what would avoid the
// largest part; then, where it applies, growth and fragmentation. A sentence each.
std::vector<std::string> VerdictSentences(const ExplainReport& report);

}  // namespace headroom
