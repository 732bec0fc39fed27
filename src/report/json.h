// SPDX-License-Identifier: Apache-2.0
//
// Reports as one JSON object each: what `--json` prints. Sizes in bytes, errors as fractions.
#pragma once

#include <string>

#include "report/diff_report.h"
#include "report/explain_report.h"
#include "report/oom_report.h"
#include "report/plan_report.h"
#include "report/score_report.h"

namespace headroom {

// The version of the object that PlanJson writes; a new one when a field changes its meaning.
inline constexpr int kPlanSchema = 1;

// {"schema", "model", "parameters", "totals", "peak", "phases", "assumptions", "verdict"}; the
// verdict is null when no device was named. peak.components holds all ten: the first eight add up
// to peak.allocated, with cache to totals.reserved, with context to totals.device.
std::string PlanJson(const PlanReport& report);

// The object of PlanJson, with "model", "parameters" and totals.device null where a recording does
// not tell them, and beside it "summary" (the verdict in words), "unexplained", "requested",
// "final", "steps",
// "holders", "growth", "allocators", "failure" and "remedies".
std::string ExplainJson(const ExplainReport& report);

// {"schema", "file", "message", "summary", "totals", …}: sizes that the message does not hold are
// null.
std::string OomJson(const OomReport& report);

// {"schema", "a", "b", "summary", "largest_difference", "totals", "components", "kinds", "phases",
// "modules"}; every size is {"a", "b", "delta"}.
std::string DiffJson(const DiffReport& diff);

// {"rows", "supported", "unsupported", "params_exact", …, "fit", "worst"}; fit is null when no row
// holds a measured boundary.
std::string ScoreJson(const ScoreReport& report);

}  // namespace headroom
