// SPDX-License-Identifier: Apache-2.0
//
// An out-of-memory message from text to report: what it says, why it failed, what to do, and
// whether `plan` reproduces it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "plan_options.h"
#include "report/oom_report.h"

namespace headroom::cli {

// `model` is null when no model was given. Fails when the text holds no such message.
Result<OomReport> MakeOomReport(std::string_view text, std::string name, const PlanOptions* model);

}  // namespace headroom::cli
