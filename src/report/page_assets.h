// SPDX-License-Identifier: Apache-2.0
//
// The files under page/, as they stand in the program; cmake/embed.cmake writes their bodies.
#pragma once

#include <string_view>

namespace headroom {

std::string_view PageStyle();
std::string_view PageScript();

}  // namespace headroom
