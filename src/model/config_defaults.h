// SPDX-License-Identifier: Apache-2.0
//
// What each config class of transformers declares: attributes, their types, defaults, other names.
//
// The table (config_defaults.cc) is made by scripts/config_defaults.py. Defaults are JSON texts,
// parsed only for the class that is asked for: start-up costs nothing.
//
//   {"num_key_value_heads", "i?", "null"}   a whole number or null, null unless the file has it
#pragma once

#include <span>
#include <string_view>

namespace headroom {

struct ConfigAttribute {
  std::string_view name;
  // Types the class accepts: 'i' whole number, 'f' number, 'b' bool, 's' string, 'o' object,
  // 'I' list of whole numbers, 'S' list of strings, 'l' any list, '?' null.
  std::string_view kinds;
  std::string_view value;  // the default, as JSON
};

// PreTrainedConfig.attribute_map: `name` is another spelling of the attribute `target`.
struct ConfigAlias {
  std::string_view name;
  std::string_view target;
};

struct ConfigClass {
  std::string_view model_type;
  std::span<const ConfigAttribute> attributes;  // those of PreTrainedConfig left out
  std::span<const ConfigAlias> aliases;
  double default_theta;  // base of the rotary embedding when the file names none
  // A composite: the model_type of its text part when the file does not name it. Else empty.
  std::string_view text_model_type;
};

// All classes, sorted by model_type.
std::span<const ConfigClass> ConfigClasses();

// Null when unknown.
const ConfigClass* FindConfigClass(std::string_view model_type);

// What every class inherits from PreTrainedConfig.
std::span<const ConfigAttribute> CommonConfigAttributes();

}  // namespace headroom
