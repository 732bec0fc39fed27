// SPDX-License-Identifier: Apache-2.0
//
// PlanReport: everything a plan says, as values; text and JSON are written from it.
//
// It is folded from a Ledger and the few facts that no ledger holds (PlanHeader). The ten
// components of the peak add up to the device total:
//
//   allocated = the eight that tensors and workspaces hold at the peak
//   reserved  = allocated + cache
//   device    = reserved + context
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "ledger/ledger.h"

namespace headroom {

// Where a run under a cap dies.
struct FailurePoint {
  Bytes requested;
  std::string phase;  // "forward", "backward", "optimizer", …
  std::string module;
  std::string op;
};

// Whether the run completes on a card.
struct Verdict {
  bool fits = false;
  // It completes, but only because the allocator gives cached blocks back and tries again.
  bool tight = false;
  std::string gpu;  // "H200"; empty when only a size was given
  Bytes memory;     // what the process may hold on the device, context included
  Bytes cap;        // memory less context: the most that the allocator may reserve
  Bytes needed;     // the smallest cap known to suffice
  std::optional<FailurePoint> failure;  // when it does not fit

  Bytes headroom() const { return cap - needed; }  // negative when it does not fit
};

// What a run that generates is asked about, in tensors (allocated).
struct GenerationFigures {
  Bytes load_peak;              // while the weights come onto the device
  Bytes weights;                // and once they are there
  Bytes prefill_peak;           // from there to the first token
  Bytes decode_peak;            // and to the last
  Bytes cache;                  // keys and values held at the end
  int64_t cache_per_token = 0;  // bytes that a token of one sequence adds
};

// A plan of the native engine: one arena, and what no arena can be smaller than.
struct NativePlan {
  std::string device;  // "cpu", "cuda"
  Bytes lower_bound;   // the bytes alive at the peak
  double Ratio(Bytes arena) const {
    return lower_bound > Bytes(0)
               ? static_cast<double>(arena.count()) / static_cast<double>(lower_bound.count())
               : 1.0;
  }
};

struct PlanHeader {
  std::string model;
  std::vector<std::string> recipe;  // in a user's words: "batch 4 x 512 tokens", "bf16", …
  int64_t parameters = 0;
  int64_t trainable = 0;
  Bytes model_reserved;                         // right after the model moved to the GPU
  std::optional<int64_t> cache_per_token = {};  // of a run that generates
  std::vector<std::string> assumptions;         // most important first
  std::vector<std::string> warnings;
  std::optional<Verdict> verdict;
  std::optional<NativePlan> native = {};
};

struct ModuleBytes {
  std::string path;  // "" for what belongs to no module
  ComponentBytes bytes{};
};

struct PlanPeak {
  Bytes allocated;
  int step = 0;
  std::string phase;  // name of the mark that closes it: "backward_end"; empty after the last
  std::string module;
  std::string op;
  ComponentBytes components{};  // cache and context are those of the totals
  KindBytes activation_kinds{};
  KindBytes temporary_kinds{};
  std::vector<ModuleBytes> modules;  // in order of first allocation
};

// The device total at a moment of the run that people can read off a tool.
struct LadderRung {
  std::string name;
  Bytes device;
};

struct PlanPhase {
  PhaseMark mark;
  ComponentBytes components{};
};

struct PlanReport {
  PlanHeader header;
  Bytes allocated;
  Bytes reserved;
  Bytes device;
  PlanPeak peak;
  std::vector<LadderRung> ladder;
  std::optional<GenerationFigures> generation;
  std::vector<PlanPhase> phases;
};

// REQUIRES: the first context part is what the process holds before the model is loaded.
PlanReport BuildPlanReport(const Ledger& ledger, PlanHeader header);

// "forward", "backward", …: the phase that a mark closes, in a user's words.
std::string_view PhaseWords(std::string_view mark_name);

}  // namespace headroom
