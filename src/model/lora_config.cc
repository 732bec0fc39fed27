// SPDX-License-Identifier: Apache-2.0
//
// peft 0.21, tuners/lora/config.py.
#include "model/lora_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/nearest.h"

namespace headroom {
namespace {

constexpr std::array<std::string_view, 3> kBiasNames = {"none", "all", "lora_only"};

using Json = nlohmann::json;
using Apply = std::function<Status(const Json& value, LoraConfig& config)>;

constexpr int64_t kLargestRank = int64_t{1} << 20;

Error Wrong(std::string_view key, std::string_view needed) {
  return Error::BadInput(Format("LoraConfig's \"{}\" must be {}", key, needed));
}

// Names as a list, or a single one; what PEFT reads with list(...) or as they are.
Result<std::vector<std::string>> Names(std::string_view key, const Json& value) {
  std::vector<std::string> names;
  if (value.is_string()) {
    names.push_back(value.get<std::string>());
    return names;
  }
  if (!value.is_array()) return Wrong(key, "a list of module names");
  for (const Json& name : value) {
    if (!name.is_string()) return Wrong(key, "a list of module names");
    names.push_back(name.get<std::string>());
  }
  return names;
}

Apply NamesInto(std::string_view key, std::vector<std::string> LoraConfig::*member) {
  return [=](const Json& value, LoraConfig& config) -> Status {
    HEADROOM_ASSIGN_OR_RETURN(config.*member, Names(key, value));
    return {};
  };
}

Apply NumberInto(std::string_view key, double LoraConfig::*member) {
  return [=](const Json& value, LoraConfig& config) -> Status {
    if (!value.is_number()) return Wrong(key, "a number");
    config.*member = value.get<double>();
    return {};
  };
}

Apply TruthInto(std::string_view key, bool LoraConfig::*member) {
  return [=](const Json& value, LoraConfig& config) -> Status {
    if (!value.is_boolean()) return Wrong(key, "true or false");
    config.*member = value.get<bool>();
    return {};
  };
}

Status ReadRank(const Json& value, LoraConfig& config) {
  if (!value.is_number_integer() || value < 1 || value > kLargestRank) {
    return Wrong("r", Format("a whole number from 1 to {}", kLargestRank));
  }
  config.r = value.get<int64_t>();
  return {};
}

Status ReadTargets(const Json& value, LoraConfig& config) {
  if (value.is_string()) {
    config.target_pattern = value.get<std::string>();
    return {};
  }
  HEADROOM_ASSIGN_OR_RETURN(config.target_modules, Names("target_modules", value));
  return {};
}

Status ReadBias(const Json& value, LoraConfig& config) {
  const std::optional<LoraConfig::Bias> bias =
      value.is_string() ? ParseLoraBias(value.get_ref<const std::string&>()) : std::nullopt;
  if (!bias) return Wrong("bias", "none, all or lora_only");
  config.bias = *bias;
  return {};
}

Status ReadLayers(const Json& value, LoraConfig& config) {
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& layer : list) {
    if (!layer.is_number_integer()) return Wrong("layers_to_transform", "a list of layer numbers");
    config.layers_to_transform.push_back(layer.get<int64_t>());
  }
  return {};
}

Status ReadTaskType(const Json& value, LoraConfig& config) {
  config.trains_classifier = value == "SEQ_CLS" || value == "TOKEN_CLS";
  return {};
}

struct Key {
  std::string_view name;
  Apply apply;
};

const std::vector<Key>& Keys() {
  static const std::vector<Key> keys = {
      {"r", &ReadRank},
      {"lora_alpha", NumberInto("lora_alpha", &LoraConfig::lora_alpha)},
      {"lora_dropout", NumberInto("lora_dropout", &LoraConfig::lora_dropout)},
      {"target_modules", &ReadTargets},
      {"exclude_modules", NamesInto("exclude_modules", &LoraConfig::exclude_modules)},
      {"layers_to_transform", &ReadLayers},
      {"bias", &ReadBias},
      {"modules_to_save", NamesInto("modules_to_save", &LoraConfig::modules_to_save)},
      {"use_rslora", TruthInto("use_rslora", &LoraConfig::use_rslora)},
      {"lora_bias", TruthInto("lora_bias", &LoraConfig::lora_bias)},
      {"task_type", &ReadTaskType},
  };
  return keys;
}

// Fields of LoraConfig that decide no memory, or none at their default, which `IsOff` asks.
constexpr std::string_view kNoEffect[] = {
    "auto_mapping",      "base_model_name_or_path",
    "fan_in_fan_out",    "inference_mode",
    "init_lora_weights", "peft_type",
    "peft_version",      "revision",
};
constexpr std::string_view kNotModelled[] = {
    "alora_invocation_tokens",
    "alpha_pattern",
    "arrow_config",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "layer_replication",
    "layers_pattern",
    "loftq_config",
    "lora_ga_config",
    "megatron_config",
    "megatron_core",
    "qalora_group_size",
    "rank_pattern",
    "runtime_config",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
};

bool IsOff(std::string_view key, const Json& value) {
  if (key == "megatron_core" || key == "qalora_group_size" || key == "runtime_config") return true;
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

Status ReadKey(const std::string& key, const Json& value, LoraConfig& config) {
  if (value.is_null()) return {};
  const auto known = std::ranges::find(Keys(), key, &Key::name);
  if (known != Keys().end()) return known->apply(value, config);
  if (std::ranges::find(kNoEffect, key) != std::end(kNoEffect)) return {};
  if (std::ranges::find(kNotModelled, key) != std::end(kNotModelled)) {
    if (IsOff(key, value)) return {};
    return Error::Unsupported(Format("LoraConfig's \"{}\" is not modelled", key));
  }
  std::vector<std::string_view> names;
  for (const Key& candidate : Keys()) names.push_back(candidate.name);
  return Error::BadInput(Format("LoraConfig has no \"{}\"{}", key, DidYouMean(key, names)));
}

}  // namespace

std::string_view Name(LoraConfig::Bias bias) { return kBiasNames[static_cast<size_t>(bias)]; }

std::optional<LoraConfig::Bias> ParseLoraBias(std::string_view name) {
  const auto found = std::ranges::find(kBiasNames, name);
  if (found == kBiasNames.end()) return std::nullopt;
  return static_cast<LoraConfig::Bias>(found - kBiasNames.begin());
}

Status CheckLoraConfig(const LoraConfig& config) {
  if (config.r < 1 || config.r > kLargestRank) {
    return Error::BadInput(
        Format("LoRA's rank r must be from 1 to {}, not {}", kLargestRank, config.r));
  }
  if (!std::isfinite(config.lora_alpha)) return Wrong("lora_alpha", "a finite number");
  if (!(config.lora_dropout >= 0 && config.lora_dropout < 1)) {
    return Error::BadInput(
        Format("LoRA's dropout must be at least 0 and below 1, not {}", config.lora_dropout));
  }
  return {};
}

Result<LoraConfig> ParseLoraConfig(std::string_view json) {
  const Json object = Json::parse(json, nullptr, false);
  if (!object.is_object()) return Error::BadInput("LoraConfig is not a JSON object");
  LoraConfig config;
  for (const auto& [key, value] : object.items()) {
    HEADROOM_RETURN_IF_ERROR(ReadKey(key, value, config));
  }
  HEADROOM_RETURN_IF_ERROR(CheckLoraConfig(config));
  return config;
}

}  // namespace headroom
