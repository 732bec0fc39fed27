// SPDX-License-Identifier: Apache-2.0
//
// The report of a native plan: the same shape as that of a predicted run.
#pragma once

#include <string>
#include <vector>

#include "engine/native_step.h"
#include "engine/train_options.h"
#include "ledger/ledger.h"
#include "report/plan_report.h"

namespace headroom::cli {

struct NativeReport {
  Ledger ledger;
  PlanReport report;
};

// `options` as they were planned; `assumptions` come first among those of the report.
NativeReport MakeNativeReport(const std::string& model, const engine::NativeStep& step,
                              const engine::TrainOptions& options, Bytes arena,
                              std::vector<std::string> assumptions);

}  // namespace headroom::cli
