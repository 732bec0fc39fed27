// SPDX-License-Identifier: Apache-2.0
//
// LoraConfig: PEFT's, as far as it decides memory, under its names.
//
//   {"r": 16, "lora_alpha": 32, "lora_dropout": 0.05, "target_modules": "all-linear"}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headroom {

struct LoraConfig {
  enum class Bias : uint8_t { kNone, kAll, kLoraOnly };

  int64_t r = 8;
  double lora_alpha = 8;
  double lora_dropout = 0;
  // A list of names matches a module whose path is one of them or ends with one; a single text is
  // "all-linear" or a regular expression of the whole path. Both unset: PEFT's own choice for the
  // model type.
  std::optional<std::vector<std::string>> target_modules;
  std::optional<std::string> target_pattern;
  std::vector<std::string> exclude_modules;
  std::vector<int64_t> layers_to_transform;  // empty: all
  Bias bias = Bias::kNone;
  std::vector<std::string> modules_to_save;
  bool use_rslora = false;
  bool lora_bias = false;
  // SEQ_CLS and TOKEN_CLS: the classifier is trained too, in full.
  bool trains_classifier = false;

  bool operator==(const LoraConfig&) const = default;
};

std::string_view Name(LoraConfig::Bias bias);  // "none", "all", "lora_only"
std::optional<LoraConfig::Bias> ParseLoraBias(std::string_view name);

// Reads LoraConfig's arguments or an adapter_config.json. Fails on values that PEFT refuses, and
// (kUnsupported) on arguments that change memory in a way that is not modelled (use_dora).
Result<LoraConfig> ParseLoraConfig(std::string_view json);

// PEFT's constraint on each number; `name` is what the message calls it.
Status CheckLoraConfig(const LoraConfig& config);

}  // namespace headroom
