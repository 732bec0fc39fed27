// SPDX-License-Identifier: Apache-2.0
//
// ModelConfig: a Hugging Face config.json, with the defaults of its class filled in.
//
// The defaults and attribute maps are those of transformers 5.17.0 (src/model/config_defaults.cc,
// made by scripts/config_defaults.py). GPT-2's "n_embd" and its standard name "hidden_size" are one
// attribute, as PreTrainedConfig.attribute_map has it: either may stand in the file or be asked
// for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"

namespace headroom {

class ModelConfig {
 public:
  // Reads the text of a config.json. `origin` names it in errors. Fails on what is no JSON object,
  // on a missing or unknown model_type (naming the nearest), on a value of another type than the
  // class declares and on sizes that are negative, zero or beyond 2^31. A composite config (a
  // vision-language model) yields its text part, with a warning.
  static Result<ModelConfig> FromJson(std::string_view text, std::string_view origin);

  // `model_type` with the class's defaults and nothing else.
  static Result<ModelConfig> Default(std::string_view model_type);

  // Every model_type whose defaults are known, sorted.
  static std::vector<std::string_view> KnownModelTypes();

  const std::string& model_type() const { return model_type_; }
  // What the file says it is ("BertForMaskedLM"); empty when it does not.
  const std::vector<std::string>& architectures() const { return architectures_; }
  // The file's "dtype" (or "torch_dtype"), which transformers 5 loads weights in.
  std::optional<DType> dtype() const;
  // Keys that look like a misspelt attribute and other remarks; shown, never fatal.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Values by attribute name. REQUIRES: the class has the attribute, it is not null and of this
  // type (the Maybe forms answer nullopt instead). Of what the class declares only attributes whose
  // default is null can be null, and those whose null has a meaning of its own (sliding_window).
  int64_t Int(std::string_view key) const;
  double Float(std::string_view key) const;
  bool Bool(std::string_view key) const;
  std::string String(std::string_view key) const;
  std::optional<int64_t> MaybeInt(std::string_view key) const;
  std::optional<double> MaybeFloat(std::string_view key) const;
  std::optional<bool> MaybeBool(std::string_view key) const;
  std::optional<std::string> MaybeString(std::string_view key) const;
  // A list of strings or integers ("layer_types", "attention_layers"); empty when absent or null.
  std::vector<std::string> Strings(std::string_view key) const;
  std::vector<int64_t> Ints(std::string_view key) const;
  // A nested object ("rope_parameters", "attn_config") as a config of its own without defaults.
  std::optional<ModelConfig> Object(std::string_view key) const;
  bool Has(std::string_view key) const;  // present and not null

  // The same config with one attribute replaced by the JSON text `value` and what follows from it
  // derived anew; for tests and sweeps. REQUIRES: FromJson would accept the value.
  ModelConfig With(std::string_view key, std::string_view value) const;

  // The merged attributes (file over defaults) as JSON text.
  std::string ToJson() const;

 private:
  struct Attributes;  // holds the JSON library's object, which no header shows
  class Reader;
  std::string model_type_;
  std::vector<std::string> architectures_;
  std::vector<std::string> warnings_;
  std::shared_ptr<const Attributes> attributes_;
};

}  // namespace headroom
