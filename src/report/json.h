// SPDX-License-Identifier: Apache-2.0
//
// Reports as one JSON object each: what `--json` prints. Sizes in bytes, errors as fractions.
#pragma once

#include <string>

#include "report/plan_report.h"
#include "report/score_report.h"

namespace headroom {

// The version of the object that PlanJson writes; a new one when a field changes its meaning.
inline constexpr int kPlanSchema = 1;

// {"schema", "model", "parameters", "totals", "peak", "phases", "assumptions", "verdict"}; the
// verdict is null when no device was named. peak.components holds all ten: the first eight add up
// to peak.allocated, with cache to totals.reserved, with context to totals.device.
std::string PlanJson(const PlanReport& report);

// {"rows", "supported", "unsupported", "params_exact", …, "fit", "worst"}; fit is null when no row
// holds a measured boundary.
std::string ScoreJson(const ScoreReport& report);

}  // namespace headroom
