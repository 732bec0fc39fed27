// SPDX-License-Identifier: Apache-2.0
//
// A plan for the terminal: the totals, the peak as a bar and a table, the ladder, what was assumed,
// and the verdict last, where the eye ends up.
#pragma once

#include <string>

#include "report/plan_report.h"
#include "report/text.h"

namespace headroom {

enum class PlanDetail : uint8_t {
  kSummary,
  kModules,  // also the tree of ModulesText
};

std::string PlanText(const PlanReport& report, PlanDetail detail, const TextStyle& style);

// The tree of modules with bytes by component at the peak; equal repeated layers are one row.
std::string ModulesText(const PlanReport& report, const TextStyle& style);

// "Fits on the H200 (139.80 GiB) with 131.20 GiB to spare."
std::string VerdictSentence(const Verdict& verdict);

}  // namespace headroom
