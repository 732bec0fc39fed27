// SPDX-License-Identifier: Apache-2.0
//
// JSON texts from strangers: read with limits, refused in one line.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace headroom {

// The object that `text` is. Fails on what is no JSON object, on more than `limit` bytes, on more
// than 64 levels and on numbers that no double holds; `origin` names the text in the message. Of
// keys that stand twice on the top level the last counts, which `warnings` then says.
Result<nlohmann::json> ParseJsonObject(std::string_view text, std::string_view origin, Bytes limit,
                                       std::vector<std::string>& warnings);

// `text` in double quotes, control characters escaped and the rest cut after 60 bytes: for
// messages.
std::string Quoted(std::string_view text);

// The value as JSON, cut likewise: for messages.
std::string Shown(const nlohmann::json& value);

}  // namespace headroom
