// SPDX-License-Identifier: Apache-2.0
#include "engine/files/config_text.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

namespace headroom::engine {
namespace {

using Json = nlohmann::json;

// The beginnings of transformers' class names (5.17, models/auto/modeling_auto.py).
std::string_view ClassPrefix(std::string_view model_type) {
  static const std::map<std::string_view, std::string_view> prefixes = {
      {"bart", "Bart"},     {"bert", "Bert"},       {"gpt2", "GPT2"},       {"llama", "Llama"},
      {"marian", "Marian"}, {"mbart", "MBart"},     {"mistral", "Mistral"}, {"pegasus", "Pegasus"},
      {"qwen2", "Qwen2"},   {"roberta", "Roberta"},
  };
  const auto found = prefixes.find(model_type);
  return found == prefixes.end() ? std::string_view() : found->second;
}

std::string ClassOf(std::string_view model_type, Task task) {
  const std::string prefix(ClassPrefix(model_type));
  switch (task) {
    case Task::kSequenceClassification:
      return prefix + "ForSequenceClassification";
    case Task::kMaskedLm:
      return prefix + "ForMaskedLM";
    case Task::kSeq2SeqLm:
      return model_type == "marian" ? "MarianMTModel" : prefix + "ForConditionalGeneration";
    default:
      return prefix == "GPT2" ? "GPT2LMHeadModel" : prefix + "ForCausalLM";
  }
}

}  // namespace

std::string ConfigText(const ModelConfig& config, Task task,
                       const std::vector<std::string>& label_names) {
  Json json = Json::parse(config.ToJson());
  json["model_type"] = config.model_type();
  json["architectures"] = {ClassOf(config.model_type(), task)};
  if (!label_names.empty()) {
    // transformers counts the labels by these.
    json.erase("num_labels");
    for (size_t i = 0; i < label_names.size(); ++i) {
      json["id2label"][std::to_string(i)] = label_names[i];
      json["label2id"][label_names[i]] = i;
    }
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace headroom::engine
