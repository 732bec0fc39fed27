// SPDX-License-Identifier: Apache-2.0
//
// YAML texts from strangers, as the JSON value they stand for: read with limits, refused in one
// line.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace headroom {

// The mapping that `text` is, scalars typed as PyYAML's safe_load does (and 5e-5 a number). Fails
// on what is no mapping, on more than one document, `limit` bytes, 16 levels or 20000 values, and
// on aliases; `origin` names the text in the message. Of keys that stand twice on the top level the
// last counts, which `warnings` then says.
Result<nlohmann::json> ParseYamlMapping(std::string_view text, std::string_view origin, Bytes limit,
                                        std::vector<std::string>& warnings);

}  // namespace headroom
