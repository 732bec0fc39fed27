// SPDX-License-Identifier: Apache-2.0
//
// A score for the terminal: a line per row, worst first, and the summary last.
#pragma once

#include <string>

#include "report/score_report.h"
#include "report/text.h"

namespace headroom {

// How much is said about each row.
enum class ScoreDetail : uint8_t {
  kLines,   // one line per row
  kPhases,  // measured and predicted bytes of every comparison
};

std::string ScoreText(const ScoreReport& report, ScoreDetail detail, const TextStyle& style);

}  // namespace headroom
