// SPDX-License-Identifier: Apache-2.0
//
// What the page's scripts draw from: one JSON object in the page, in columns and differences so
// that a long run stays small. docs/html_report.md describes it.
#pragma once

#include <string>

#include "report/html_report.h"

namespace headroom {

// Holds no '<': it can stand inside a script element as it is.
std::string PageData(const ReportPage& page);

}  // namespace headroom
