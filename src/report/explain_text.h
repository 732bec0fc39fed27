// SPDX-License-Identifier: Apache-2.0
//
// A recording for the terminal: the verdict in words first, then the figures it rests on.
#pragma once

#include <string>

#include "report/explain_report.h"
#include "report/text.h"

namespace headroom {

std::string ExplainText(const ExplainReport& report, const TextStyle& style);

}  // namespace headroom
