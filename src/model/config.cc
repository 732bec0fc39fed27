// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/format.h"
#include "base/nearest.h"
#include "model/config_check.h"
#include "model/config_defaults.h"
#include "model/config_derive.h"
#include "model/json_text.h"

namespace headroom {

using Json = nlohmann::json;

struct ModelConfig::Attributes {
  const ConfigClass* config_class = nullptr;  // null: a nested object, which has no class
  Json file;                                  // what was read, without what names the class
  Json merged;                                // file over defaults, canonical names

  std::string_view Canonical(std::string_view key) const;
  const Json* Find(std::string_view key) const;  // null when absent or null
};

namespace {

// Hub files stay below 2 MiB, of which most is the label map of a classifier.
constexpr Bytes kLargestFile = MiB(8);

// Keys that are read under these names although no class declares them.
// clang-format off
constexpr std::string_view kKeysOfEveryClass[] = {
    "_name_or_path", "architectures", "attn_implementation", "auto_map", "dtype", "id2label",
    "label2id", "model_type", "num_labels", "quantization_config", "return_dict", "rope_scaling",
    "rope_theta", "partial_rotary_factor", "torch_dtype", "transformers_version",
};
// clang-format on

}  // namespace

// ---- Reading ----

class ModelConfig::Reader {
 public:
  Reader(std::string_view origin, std::vector<std::string> warnings)
      : origin_(origin), warnings_(std::move(warnings)) {}

  Result<ModelConfig> Read(Json file);

 private:
  Status FindClass(const Json& file);
  Status EnterTextPart(Json& file);
  Status ReadArchitectures(const Json& file);
  Status Merge(Json& file);
  Status MergeKey(const std::string& key, const Json& value);
  Status ReadLabels(const Json& file);
  Status ReadDType(const Json& file);
  void WarnOfMisspellings(const Json& file);
  const ConfigAttribute* Declared(std::string_view name) const;
  Error Unknown(const std::string& model_type) const;

  std::string origin_;
  std::vector<std::string> warnings_;
  std::vector<std::string> architectures_;
  const ConfigClass* class_ = nullptr;
  Json merged_ = Json::object();
};

Error ModelConfig::Reader::Unknown(const std::string& model_type) const {
  const std::vector<std::string_view> known = KnownModelTypes();
  if (std::string hint = DidYouMean(model_type, known); !hint.empty()) {
    return Error::BadInput(Format("unknown model_type {}{}", Quoted(model_type), hint));
  }
  return Error::Unsupported(Format("model_type {} is not one that Headroom knows; those are {}",
                                   Quoted(model_type), fmt::join(known, ", ")));
}

Status ModelConfig::Reader::FindClass(const Json& file) {
  const auto found = file.find("model_type");
  if (found == file.end() || found->is_null()) {
    return Error::BadInput(
        "no \"model_type\": add the one of the model's class, such as \"model_type\": \"bert\"");
  }
  if (!found->is_string()) {
    return Error::BadInput(
        Format("\"model_type\" must be a string such as \"bert\", not {}", Shown(*found)));
  }
  const std::string& model_type = found->get_ref<const std::string&>();
  class_ = FindConfigClass(model_type);
  const auto text = file.find("text_config");
  const bool has_text_part = text != file.end() && text->is_object() && !text->empty();
  if (class_ == nullptr && !has_text_part) return Unknown(model_type);
  return {};
}

// A vision-language model: goes on with its text part in place of the file.
Status ModelConfig::Reader::EnterTextPart(Json& file) {
  if (class_ != nullptr && class_->text_model_type.empty()) return {};
  const std::string whole = file["model_type"].get<std::string>();
  // Qwen2-VL's older files keep the text part on the top level.
  Json text = file;
  if (file.contains("text_config") && file["text_config"].is_object()) text = file["text_config"];
  std::string text_type(class_ != nullptr ? class_->text_model_type : "");
  if (text.contains("text_config")) {
    text.erase("text_config");
    text.erase("vision_config");
  } else if (text.contains("model_type") && text["model_type"].is_string() &&
             text["model_type"] != file["model_type"]) {
    text_type = text["model_type"].get<std::string>();
  }
  class_ = FindConfigClass(text_type);
  if (class_ == nullptr || !class_->text_model_type.empty()) {
    return Unknown(text_type.empty() ? whole : text_type);
  }
  for (const char* shared :
       {"dtype", "torch_dtype", "tie_word_embeddings", "id2label", "num_labels"}) {
    if (file.contains(shared) && !text.contains(shared)) text[shared] = file[shared];
  }
  warnings_.push_back(
      Format("{}: of the composite model_type {} only the text part, {}, is read: the rest, its "
             "parameters and activations, is not counted",
             origin_, Quoted(whole), text_type));
  file = std::move(text);
  return {};
}

Status ModelConfig::Reader::ReadArchitectures(const Json& file) {
  const auto found = file.find("architectures");
  if (found == file.end() || found->is_null()) return {};
  if (!KindMatches('S', *found)) {
    return Error::BadInput(
        Format("\"architectures\" must be a list of strings, not {}", Shown(*found)));
  }
  architectures_ = found->get<std::vector<std::string>>();
  return {};
}

const ConfigAttribute* ModelConfig::Reader::Declared(std::string_view name) const {
  for (const auto& attributes : {class_->attributes, CommonConfigAttributes()}) {
    const auto found = std::ranges::find(attributes, name, &ConfigAttribute::name);
    if (found != attributes.end()) return &*found;
  }
  return nullptr;
}

Status ModelConfig::Reader::MergeKey(const std::string& key, const Json& value) {
  const ConfigAttribute* attribute = Declared(key);
  if (attribute == nullptr) {
    merged_[key] = value;
    return {};
  }
  Json taken = value;
  // ViT takes [224, 224] for 224; a grid of unequal sides is not modelled.
  const bool is_pair = value.is_array() && value.size() == 2 && value[0] == value[1];
  if (is_pair && key.ends_with("_size")) taken = value[0];
  HEADROOM_RETURN_IF_ERROR(CheckAttribute(*attribute, taken));
  const Json& standard = merged_[key];
  if (taken.is_object() && standard.is_object()) {
    HEADROOM_RETURN_IF_ERROR(CheckNested(key, standard, taken));
    Json nested = standard;
    nested.update(taken);
    taken = std::move(nested);
  }
  merged_[key] = std::move(taken);
  return {};
}

Status ModelConfig::Reader::Merge(Json& file) {
  for (const auto& attributes : {CommonConfigAttributes(), class_->attributes}) {
    for (const ConfigAttribute& attribute : attributes) {
      merged_[std::string(attribute.name)] = Json::parse(attribute.value);
    }
  }
  const auto alias_of = [&](const std::string& key) {
    return std::ranges::find(class_->aliases, key, &ConfigAlias::name);
  };
  for (const auto& [key, value] : file.items()) {
    if (alias_of(key) == class_->aliases.end()) HEADROOM_RETURN_IF_ERROR(MergeKey(key, value));
  }
  // As in PreTrainedConfig, the standard name overrides the class's own when both are there.
  for (const auto& [key, value] : file.items()) {
    const auto alias = alias_of(key);
    if (alias == class_->aliases.end()) continue;
    const std::string target(alias->target);
    if (file.contains(target) && file[target] != value) {
      warnings_.push_back(
          Format("{}: \"{}\" is {} and \"{}\", the same attribute, is {}; the "
                 "former counts",
                 origin_, key, Shown(value), target, Shown(file[target])));
    }
    HEADROOM_RETURN_IF_ERROR(MergeKey(target, value));
  }
  return {};
}

// num_labels is no field of the file format but the length of id2label; where both stand,
// num_labels rebuilds the map (PreTrainedConfig.num_labels' setter, transformers 5.17.0).
Status ModelConfig::Reader::ReadLabels(const Json& file) {
  const auto labels = file.find("id2label");
  if (labels == file.end() || labels->is_null()) return {};
  if (!labels->is_object()) {
    return Error::BadInput(Format("\"id2label\" must be an object, not {}", Shown(*labels)));
  }
  if (!file.contains("num_labels") && !labels->empty()) merged_["num_labels"] = labels->size();
  return {};
}

Status ModelConfig::Reader::ReadDType(const Json& file) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    const auto found = file.find(key);
    if (found == file.end() || found->is_null()) continue;
    if (!found->is_string()) {
      return Error::BadInput(
          Format("\"{}\" must be a string such as \"bfloat16\", not {}", key, Shown(*found)));
    }
    merged_["dtype"] = *found;
    if (!ParseDType(found->get_ref<const std::string&>())) {
      warnings_.push_back(
          Format("{}: \"{}\" {} is not a dtype that Headroom knows; taken as "
                 "not given",
                 origin_, key, Shown(*found)));
    }
  }
  return {};
}

void ModelConfig::Reader::WarnOfMisspellings(const Json& file) {
  std::vector<std::string_view> known(std::begin(kKeysOfEveryClass), std::end(kKeysOfEveryClass));
  for (const auto& attributes : {CommonConfigAttributes(), class_->attributes}) {
    for (const ConfigAttribute& attribute : attributes) known.push_back(attribute.name);
  }
  for (const ConfigAlias& alias : class_->aliases) known.push_back(alias.name);
  for (const auto& [key, value] : file.items()) {
    if (std::ranges::find(known, key) != known.end() || key.size() > 100) continue;
    for (const std::string_view name : known) {
      if (file.contains(name) || !IsMisspelling(key, name)) continue;
      warnings_.push_back(Format("{}: {} is not known to {}: did you mean \"{}\"?", origin_,
                                 Quoted(key), class_->model_type, name));
      break;
    }
  }
}

Result<ModelConfig> ModelConfig::Reader::Read(Json file) {
  HEADROOM_RETURN_IF_ERROR(FindClass(file));
  HEADROOM_RETURN_IF_ERROR(ReadArchitectures(file));
  HEADROOM_RETURN_IF_ERROR(EnterTextPart(file));
  HEADROOM_RETURN_IF_ERROR(Merge(file));
  HEADROOM_RETURN_IF_ERROR(ReadLabels(file));
  HEADROOM_RETURN_IF_ERROR(ReadDType(file));
  WarnOfMisspellings(file);
  HEADROOM_RETURN_IF_ERROR(DeriveAttributes(*class_, merged_));
  for (const auto& attributes : {class_->attributes, CommonConfigAttributes()}) {
    for (const ConfigAttribute& attribute : attributes) {
      const auto value = merged_.find(attribute.name);
      if (value == merged_.end()) continue;
      HEADROOM_RETURN_IF_ERROR(SettleNull(attribute, *value));
      // What was derived can leave the range that what was read is held to.
      HEADROOM_RETURN_IF_ERROR(CheckRange(attribute, *value));
    }
  }
  for (const char* elsewhere : {"architectures", "id2label", "label2id", "torch_dtype"}) {
    merged_.erase(elsewhere);
  }
  merged_["model_type"] = class_->model_type;
  file["model_type"] = class_->model_type;

  ModelConfig config;
  config.model_type_ = class_->model_type;
  config.architectures_ = std::move(architectures_);
  config.warnings_ = std::move(warnings_);
  config.attributes_ =
      std::make_shared<const Attributes>(Attributes{class_, std::move(file), std::move(merged_)});
  return config;
}

Result<ModelConfig> ModelConfig::FromJson(std::string_view text, std::string_view origin) {
  std::vector<std::string> warnings;
  HEADROOM_ASSIGN_OR_RETURN(Json file, ParseJsonObject(text, origin, kLargestFile, warnings));
  Result<ModelConfig> config = Reader(origin, std::move(warnings)).Read(std::move(file));
  if (!config.ok()) return config.error().In(std::string(origin));
  return config;
}

Result<ModelConfig> ModelConfig::Default(std::string_view model_type) {
  return Reader("default", {}).Read(Json{{"model_type", model_type}});
}

std::vector<std::string_view> ModelConfig::KnownModelTypes() {
  std::vector<std::string_view> types;
  for (const ConfigClass& known : ConfigClasses()) types.push_back(known.model_type);
  return types;
}

// ---- Access ----

std::string_view ModelConfig::Attributes::Canonical(std::string_view key) const {
  if (config_class == nullptr) return key;
  const auto alias = std::ranges::find(config_class->aliases, key, &ConfigAlias::name);
  return alias == config_class->aliases.end() ? key : alias->target;
}

const Json* ModelConfig::Attributes::Find(std::string_view key) const {
  const auto found = merged.find(Canonical(key));
  return found == merged.end() || found->is_null() ? nullptr : &*found;
}

std::optional<DType> ModelConfig::dtype() const {
  const std::optional<std::string> name = MaybeString("dtype");
  return name ? ParseDType(*name) : std::nullopt;
}

std::optional<int64_t> ModelConfig::MaybeInt(std::string_view key) const {
  const Json* value = attributes_->Find(key);
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  // Keys that no class declares are not range-checked.
  if (!IsWithin(*value, INT64_MIN, INT64_MAX)) return std::nullopt;
  return value->get<int64_t>();
}

std::optional<double> ModelConfig::MaybeFloat(std::string_view key) const {
  const Json* value = attributes_->Find(key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return value->get<double>();
}

std::optional<bool> ModelConfig::MaybeBool(std::string_view key) const {
  const Json* value = attributes_->Find(key);
  if (value == nullptr || !value->is_boolean()) return std::nullopt;
  return value->get<bool>();
}

std::optional<std::string> ModelConfig::MaybeString(std::string_view key) const {
  const Json* value = attributes_->Find(key);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return value->get<std::string>();
}

namespace {

template <typename T>
T Required(std::optional<T> value, const std::string& model_type, std::string_view key) {
  HEADROOM_CHECK(value.has_value(), Format("no \"{}\" in a {} config", key, model_type));
  return *std::move(value);
}

}  // namespace

int64_t ModelConfig::Int(std::string_view key) const {
  return Required(MaybeInt(key), model_type_, key);
}
double ModelConfig::Float(std::string_view key) const {
  return Required(MaybeFloat(key), model_type_, key);
}
bool ModelConfig::Bool(std::string_view key) const {
  return Required(MaybeBool(key), model_type_, key);
}
std::string ModelConfig::String(std::string_view key) const {
  return Required(MaybeString(key), model_type_, key);
}

std::vector<std::string> ModelConfig::Strings(std::string_view key) const {
  const Json* value = attributes_->Find(key);
  if (value == nullptr || !KindMatches('S', *value)) return {};
  return value->get<std::vector<std::string>>();
}

std::vector<int64_t> ModelConfig::Ints(std::string_view key) const {
  const Json* value = attributes_->Find(key);
  if (value == nullptr || !KindMatches('I', *value)) return {};
  return value->get<std::vector<int64_t>>();
}

std::optional<ModelConfig> ModelConfig::Object(std::string_view key) const {
  const Json* value = attributes_->Find(key);
  if (value == nullptr || !value->is_object()) return std::nullopt;
  ModelConfig nested;
  nested.attributes_ = std::make_shared<const Attributes>(Attributes{nullptr, *value, *value});
  return nested;
}

bool ModelConfig::Has(std::string_view key) const { return attributes_->Find(key) != nullptr; }

ModelConfig ModelConfig::With(std::string_view key, std::string_view value) const {
  const Json parsed = Json::parse(value, nullptr, /*allow_exceptions=*/false);
  HEADROOM_CHECK(!parsed.is_discarded(), Format("\"{}\": {} is no JSON", key, value));
  Json file = attributes_->file;
  const std::string_view canonical = attributes_->Canonical(key);
  if (attributes_->config_class == nullptr) {
    file[std::string(key)] = parsed;
    ModelConfig nested;
    nested.attributes_ = std::make_shared<const Attributes>(Attributes{nullptr, file, file});
    return nested;
  }
  for (const ConfigAlias& alias : attributes_->config_class->aliases) {
    if (alias.target == canonical) file.erase(std::string(alias.name));
  }
  file[std::string(canonical)] = parsed;
  Result<ModelConfig> changed = Reader("config", {}).Read(std::move(file));
  HEADROOM_CHECK(changed.ok(), changed.error().message);
  changed->architectures_ = architectures_;
  changed->warnings_ = warnings_;
  return *std::move(changed);
}

std::string ModelConfig::ToJson() const {
  return attributes_->merged.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace headroom
