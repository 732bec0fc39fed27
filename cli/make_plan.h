// SPDX-License-Identifier: Apache-2.0
//
// One plan from options to report: find the model, decide what nobody said, predict, judge.
#pragma once

#include <string>

#include "base/dtype.h"
#include "base/result.h"
#include "ledger/ledger.h"
#include "model/config.h"
#include "model/recipe.h"
#include "plan_options.h"
#include "report/plan_report.h"

namespace headroom::cli {

struct Plan {
  Ledger ledger;
  PlanReport report;
};

Result<Plan> MakePlan(const PlanOptions& options);

// The model and what MakePlan would decide about it, without predicting anything.
struct ResolvedModel {
  std::string name;
  ModelConfig config;
  Task task = Task::kCausalLm;
  DType weights_dtype = DType::kFloat32;
};
Result<ResolvedModel> ResolveModel(const PlanOptions& options);

}  // namespace headroom::cli
