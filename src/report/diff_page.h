// SPDX-License-Identifier: Apache-2.0
//
// Two runs side by side as a page for HtmlReport.
#pragma once

#include <optional>
#include <string>

#include "report/diff_report.h"
#include "report/html_report.h"

namespace headroom {

// What a side is drawn from: a ledger, or the timeline of a process that was watched.
struct DiffPicture {
  const Ledger* ledger = nullptr;  // outlives the page
  std::optional<PageTimeline> timeline;
};

ReportPage DiffPage(const DiffReport& diff, DiffPicture a, DiffPicture b, std::string generator);

}  // namespace headroom
