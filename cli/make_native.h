// SPDX-License-Identifier: Apache-2.0
//
// The report of a native plan: the same shape as that of a predicted run.
#pragma once

#include <string>
#include <vector>

#include "engine/native_step.h"
#include "engine/train_options.h"
#include "ledger/ledger.h"
#include "make_plan.h"
#include "report/plan_report.h"

namespace headroom::cli {

// `options` as they were planned; `assumptions` come first among those of the report.
Plan MakeNativeReport(const std::string& model, const engine::NativeStep& step,
                      const engine::TrainOptions& options, Bytes arena,
                      std::vector<std::string> assumptions);

// `plan --engine native`: the recipe of the options, where the native engine has all of it. Fails
// (kUnsupported) naming the first part that it has not.
Result<Plan> MakeNativePlan(const PlanOptions& options);

}  // namespace headroom::cli
