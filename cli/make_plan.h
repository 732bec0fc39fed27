// SPDX-License-Identifier: Apache-2.0
//
// One plan from options to report: find the model, decide what nobody said, predict, judge.
#pragma once

#include "base/result.h"
#include "ledger/ledger.h"
#include "plan_options.h"
#include "report/plan_report.h"

namespace headroom::cli {

struct Plan {
  Ledger ledger;
  PlanReport report;
};

Result<Plan> MakePlan(const PlanOptions& options);

}  // namespace headroom::cli
