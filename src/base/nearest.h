// SPDX-License-Identifier: Apache-2.0
//
// The known name a user most likely meant.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

// The candidate with the smallest edit distance to `name` (case and '-', '_' ignored), or "" when
// even that one differs in more than a third of its letters and does not contain `name`.
std::string Nearest(std::string_view name, std::span<const std::string_view> candidates);

// `: did you mean "bert"?` for an error message, or "" when nothing is near.
std::string DidYouMean(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace headroom
