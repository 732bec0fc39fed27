// SPDX-License-Identifier: Apache-2.0
//
// Reading members of a tokenizer's JSON, which may hold anything. Only the sources of Tokenizer
// include this.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/format.h"
#include "base/result.h"
#include "model/json_text.h"

namespace headroom::engine {

using Json = nlohmann::json;

inline const Json kNull;

// The member `key`, null when it is not there. REQUIRES: `json` is an object.
inline const Json& Member(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() ? kNull : *found;
}

inline bool Flag(const Json& json, const char* key, bool otherwise) {
  const Json& value = Member(json, key);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

inline std::string Text(const Json& json, const char* key, std::string_view otherwise = "") {
  const Json& value = Member(json, key);
  return value.is_string() ? value.get<std::string>() : std::string(otherwise);
}

inline std::optional<int32_t> IdIn(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  const auto id = value.get<int64_t>();
  if (id < 0 || id > std::numeric_limits<int32_t>::max()) return std::nullopt;
  return static_cast<int32_t>(id);
}

inline Error Unknown(std::string_view what, const Json& type, std::string_view known) {
  return Error::Unsupported(
      Format("{} {} is none that Headroom reads ({})", what, Shown(type), known));
}

inline Error Wrong(std::string_view what, std::string_view needed) {
  return Error::BadInput(Format("{} is not {}", what, needed));
}

}  // namespace headroom::engine
