// SPDX-License-Identifier: Apache-2.0
//
// From options to the report of `headroom fit`: what fits, and what to change so that it does.
#pragma once

#include <functional>

#include "advise/advice.h"
#include "base/result.h"
#include "plan_options.h"
#include "report/fit_report.h"

namespace headroom::cli {

// `progress` is told how many runs were predicted so far; it may be null. Fails without a budget.
Result<FitReport> MakeFit(const PlanOptions& options, const AdviceScope& scope,
                          const std::function<void(int)>& progress = nullptr);

}  // namespace headroom::cli
