// SPDX-License-Identifier: Apache-2.0
//
// What a recording says, for a terminal and for a browser.
#pragma once

#include <string>

#include "observe/recording.h"
#include "report/html_report.h"
#include "report/text.h"

namespace headroom::cli {

// The ladder, the chart and the processes of every GPU that the watched used; of every GPU when
// nothing was watched.
std::string RecordingText(const observe::Recording& recording, const TextStyle& style);

ReportPage RecordingPage(const observe::Recording& recording);

}  // namespace headroom::cli
