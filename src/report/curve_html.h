// SPDX-License-Identifier: Apache-2.0
//
// Curves on the page: drawn without scripts, described for who does not see them.
#pragma once

#include <string>

#include "report/html_report.h"

namespace headroom {

// A figure, or nothing where no line has two points.
std::string CurveHtml(const PageCurve& curve, const std::string& id);

}  // namespace headroom
