// SPDX-License-Identifier: Apache-2.0
//
// The JSON that several reports share. Only for the files of report/ that write JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "report/plan_report.h"

namespace headroom {

using Json = nlohmann::ordered_json;

// The text of `--json`. Names come from users' files and may hold anything; bad UTF-8 becomes
// U+FFFD.
std::string Dump(const Json& json);

// {"weights": bytes, …}: all ten.
Json ComponentsJson(const ComponentBytes& components);
Json PeakJson(const PlanPeak& peak);
Json PhasesJson(const PlanReport& report);
Json VerdictJson(const Verdict& verdict);

}  // namespace headroom
