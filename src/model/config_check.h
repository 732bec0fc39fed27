// SPDX-License-Identifier: Apache-2.0
//
// What a config file may say of an attribute: its type, its range, and when it may be null.
//
// A file is held to what the class declares (ConfigAttribute::kinds). Sizes, that is whole numbers
// with a positive default, lie between 1 and 2^31; dropouts between 0 and 1; layers below 2^14.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"
#include "model/config_defaults.h"

namespace headroom {

// Whether `value` is of the type that one letter of ConfigAttribute::kinds names.
bool KindMatches(char kind, const nlohmann::json& value);

// REQUIRES: `number` is a whole number.
bool IsWithin(const nlohmann::json& number, int64_t least, int64_t most);

// A value from a file. Null always passes: a checkpoint may say it for "as derived" whatever its
// class declares; SettleNull has the last word.
Status CheckAttribute(const ConfigAttribute& attribute, const nlohmann::json& value);

// The ranges alone, for what was derived rather than read.
Status CheckRange(const ConfigAttribute& attribute, const nlohmann::json& value);

// After derivation: makes a null that Python code would read as false or 0 that, and refuses others
// where the class has a value, so that ModelConfig::Int and its like cannot meet one.
Status SettleNull(const ConfigAttribute& attribute, nlohmann::json& value);

// A nested object with defaults of its own (MPT's attn_config): same types as there.
Status CheckNested(std::string_view name, const nlohmann::json& defaults,
                   const nlohmann::json& value);

// One letter too many, missing, wrong or two swapped; hyphens, underscores and case aside. Nearer
// than base/nearest.h asks, because keys that a class does not know are common and harmless.
bool IsMisspelling(std::string_view written, std::string_view known);

}  // namespace headroom
