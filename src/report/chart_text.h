// SPDX-License-Identifier: Apache-2.0
//
// Memory over time in a terminal: a chart of a few lines.
//
//    7,512.0 MiB |            ########
//                |    ################....
//                | #######################
//                0.0 s                 12.4 s
#pragma once

#include <string>

#include "report/html_report.h"
#include "report/text.h"

namespace headroom {

// The layers stacked, `height` lines high; a column shows the highest moment of its stretch of
// time. The first layer is drawn solid, the others lighter. Empty when nothing was sampled.
std::string ChartText(const PageTimeline& timeline, const TextStyle& style, int height = 8);

}  // namespace headroom
