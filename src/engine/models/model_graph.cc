// SPDX-License-Identifier: Apache-2.0
#include "engine/models/model_graph.h"

#include <algorithm>
#include <map>

#include "base/format.h"
#include "base/nearest.h"
#include "engine/models/families.h"

namespace headroom::engine {
namespace {

using Build = Status (*)(ModelContext&);

const std::map<std::string_view, Build>& Families() {
  static const std::map<std::string_view, Build> families = {
      {"bart", BuildBart},     {"bert", BuildBert},    {"gpt2", BuildGpt2},
      {"llama", BuildLlama},   {"marian", BuildBart},  {"mbart", BuildBart},
      {"mistral", BuildLlama}, {"pegasus", BuildBart}, {"qwen2", BuildLlama},
      {"roberta", BuildBert},
  };
  return families;
}

std::string Join(const std::vector<std::string_view>& names) {
  std::string text;
  for (const std::string_view name : names) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

}  // namespace

std::vector<std::string_view> NativeModelTypes() {
  std::vector<std::string_view> names;
  for (const auto& [name, build] : Families()) names.push_back(name);
  return names;
}

Result<ModelGraph> BuildModelGraph(const ModelConfig& config, const ModelGraphOptions& options) {
  const auto family = Families().find(config.model_type());
  if (family == Families().end()) {
    return Error::Unsupported(Format("the native engine does not have model_type \"{}\"; it has {}",
                                     config.model_type(), Join(NativeModelTypes())));
  }
  if (options.rows.batch <= 0 || options.rows.sequence <= 0) {
    return Error::BadInput("a batch and a sequence of at least one are needed");
  }
  ModelGraph model;
  ModelContext context(config, options, model);
  HEADROOM_RETURN_IF_ERROR(family->second(context));
  return model;
}

}  // namespace headroom::engine
