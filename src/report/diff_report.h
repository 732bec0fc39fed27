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
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "report/plan_report.h"
#include "report/text.h"

namespace headroom {

struct Change {
  Bytes a;
  Bytes b;
  Bytes delta() const { return b - a; }
};

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

struct DiffReport {
  std::string a;  // what each is called
  std::string b;
  Change allocated;
  Change reserved;
  std::optional<Change> device;  // when both know what lies outside the allocator
  std::string a_peak;            // "Peak in step 2, backward"
  std::string b_peak;
  std::array<Change, kComponentCount> components{};  // cache and context from the totals
  std::array<Change, kKindCount> activation_kinds{};
  std::array<Change, kKindCount> temporary_kinds{};
  std::vector<PhaseChange> phases;  // those that both have, in order
  std::vector<NamedChange>
      modules;  // largest difference first; empty when the names differ in kind
};

DiffReport BuildDiff(const PlanReport& a, std::string a_name, const PlanReport& b,
                     std::string b_name);

// The largest difference of a component, as a share of the larger peak.
double LargestDifference(const DiffReport& diff);

// What grew, what shrank and by how much, in words.
std::string DiffVerdict(const DiffReport& diff);
std::string DiffText(const DiffReport& diff, const TextStyle& style);

}  // namespace headroom
