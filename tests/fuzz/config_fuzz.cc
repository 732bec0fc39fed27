// SPDX-License-Identifier: Apache-2.0
//
// ModelConfig::FromJson on arbitrary bytes: no crash; what is accepted reads back as the same, and
// what the class declares can be asked for.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "model/config.h"
#include "model/config_defaults.h"

namespace headroom {
namespace {

void AskFor(const ModelConfig& config, const ConfigAttribute& attribute) {
  const bool may_be_null = attribute.value == "null" || !config.Has(attribute.name);
  const std::string_view kinds = attribute.kinds;
  if (may_be_null || kinds.size() > 1) {
    (void)config.MaybeInt(attribute.name);
    (void)config.MaybeFloat(attribute.name);
    (void)config.MaybeBool(attribute.name);
    (void)config.MaybeString(attribute.name);
    (void)config.Strings(attribute.name);
    (void)config.Ints(attribute.name);
    (void)config.Object(attribute.name);
    return;
  }
  switch (kinds[0]) {
    case 'i':
      (void)config.Int(attribute.name);
      break;
    case 'f':
      (void)config.Float(attribute.name);
      break;
    case 'b':
      (void)config.Bool(attribute.name);
      break;
    case 's':
      (void)config.String(attribute.name);
      break;
    default:
      break;
  }
}

void CheckOneLine(std::string_view message) {
  HEADROOM_CHECK(message.find('\n') == std::string_view::npos, "a message of two lines");
  HEADROOM_CHECK(message.size() < 2000, "a message that fills the screen");
}

void TryConfig(std::string_view text) {
  const Result<ModelConfig> config = ModelConfig::FromJson(text, "fuzz");
  if (!config.ok()) return CheckOneLine(config.error().message);
  for (const std::string& warning : config->warnings()) CheckOneLine(warning);
  (void)config->dtype();
  const ConfigClass* config_class = FindConfigClass(config->model_type());
  HEADROOM_CHECK(config_class != nullptr, "a model_type without a class");
  for (const ConfigAttribute& attribute : config_class->attributes) AskFor(*config, attribute);
  for (const ConfigAttribute& attribute : CommonConfigAttributes()) AskFor(*config, attribute);
  const std::string once = config->ToJson();
  const Result<ModelConfig> again = ModelConfig::FromJson(once, "again");
  HEADROOM_CHECK(again.ok(), again.error().message);
}

}  // namespace
}  // namespace headroom

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  headroom::TryConfig({reinterpret_cast<const char*>(data), size});
  return 0;
}
