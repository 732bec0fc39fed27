// SPDX-License-Identifier: Apache-2.0
//
// DiffReport: two runs side by side, aligned by component, kind, phase and module.
//
// Each is a PlanReport, whoever made it: the plan of a run and a recording of it, the plans of two
// recipes, recordings before and after a change. `b` less `a` is what grew. Components are compared
// at either run's peak, phases by step and name, modules by path.
//
//   plan bert-base, batch 4    weights 417   activations 1,203      activations +2,406 MiB
//   plan bert-base, batch 12   weights 417   activations 3,609
//
// A process that was watched from outside shows its device memory and nothing else: what such a run
// does not know is unknown, never zero.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "report/plan_report.h"
#include "report/text.h"

namespace headroom {

// A size on both sides; nothing on a side that does not tell it.
struct Change {
  std::optional<Bytes> a;
  std::optional<Bytes> b;
  bool known() const { return a && b; }
  // Whether there is nothing to show: no side tells of a byte.
  bool empty() const { return larger() == Bytes(0); }
  // Where both are known; else 0.
  Bytes delta() const { return known() ? *b - *a : Bytes(0); }
  Bytes size() const { return delta() < Bytes(0) ? -delta() : delta(); }
  Bytes larger() const { return std::max(a.value_or(Bytes(0)), b.value_or(Bytes(0))); }
};
using KindChanges = std::array<Change, kKindCount>;

struct NamedChange {
  std::string name;
  Change change;
};

struct PhaseChange {
  int step = 0;
  std::string name;
  Change allocated;  // at the mark
  Change peak;       // since the mark before
};

// One side of the comparison.
struct DiffRun {
  std::string name;
  PlanReport report = {};
  // Watched from outside: only report.device counts.
  bool watched = false;
  // False of JSON that does not tell the kinds of activations and temporaries apart.
  bool kinds_known = true;
  // For a watched run, when it peaked and what stands apart; else empty.
  std::string peak = {};
};

struct DiffReport {
  std::string a;  // what each is called
  std::string b;
  // Of a side that was watched only `device` is known; of a snapshot, all but that.
  Change allocated;
  Change reserved;
  Change device;
  std::string a_peak;  // "Peak in step 2, backward"
  std::string b_peak;
  std::array<Change, kComponentCount> components{};  // cache and context from the totals
  KindChanges activation_kinds{};
  KindChanges temporary_kinds{};
  std::vector<PhaseChange> phases;  // those that both have, in order
  std::vector<NamedChange>
      modules;  // largest difference first; empty when the names differ in kind

  bool a_watched() const { return !allocated.a; }
  bool b_watched() const { return !allocated.b; }
  // Activations and temporaries together.
  KindChanges kinds() const;
};

// What `plan --json` or `explain --json` wrote, as a side of a comparison: a module's bytes stand
// as one sum. Nothing when the text is no such object; fails on one that lacks a part.
Result<std::optional<DiffRun>> DiffRunFromJson(std::string_view text, const std::string& name);

DiffReport BuildDiff(const DiffRun& a, const DiffRun& b);

// The largest difference of a component, as a share of the larger peak; nothing when a side was
// watched.
std::optional<double> LargestDifference(const DiffReport& diff);

// What grew, what shrank and by how much, in words.
std::string DiffVerdict(const DiffReport& diff);
std::string DiffText(const DiffReport& diff, const TextStyle& style);

}  // namespace headroom
