// SPDX-License-Identifier: Apache-2.0
//
// What the texts of `headroom ops` share, counted or measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "report/text.h"

namespace headroom {

// "4,081", "12.3", "0.04"
std::string ThreeDigits(double value);
// 0 of nothing.
double Share(double part, double whole);

// The model with its parameters and recipe; a heading behind an empty line.
std::string OpsTitle(const std::string& model, int64_t parameters,
                     const std::vector<std::string>& recipe, const TextStyle& style);
std::string OpsHeading(const TextStyle& style, std::string_view text);

}  // namespace headroom
