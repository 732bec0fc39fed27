// SPDX-License-Identifier: Apache-2.0
//
// A recorded run, or the message it died with, as a page for HtmlReport.
#pragma once

#include <string>

#include "report/explain_report.h"
#include "report/html_report.h"
#include "report/oom_report.h"

namespace headroom {

// `ledger` is that of the recording, and outlives the page.
ReportPage ExplainPage(const ExplainReport& report, const Ledger& ledger, std::string generator);

// A message has no memory over time: its figures, its causes and what to do.
ReportPage OomPage(const OomReport& report, std::string generator);

}  // namespace headroom
