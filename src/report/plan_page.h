// SPDX-License-Identifier: Apache-2.0
//
// A plan as a page for HtmlReport.
#pragma once

#include <string>

#include "report/html_report.h"
#include "report/plan_report.h"

namespace headroom {

// `ledger` is the one that `report` was built from, and outlives the page.
ReportPage PlanPage(const PlanReport& report, const Ledger& ledger, std::string generator);

}  // namespace headroom
