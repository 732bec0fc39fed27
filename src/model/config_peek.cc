// SPDX-License-Identifier: Apache-2.0
#include "model/config_peek.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "model/json_text.h"

namespace headroom {

Result<ConfigPeek> PeekConfig(std::string_view text, std::string_view origin) {
  constexpr Bytes kLargest = MiB(8);
  std::vector<std::string> ignored;
  HEADROOM_ASSIGN_OR_RETURN(const nlohmann::json config,
                            ParseJsonObject(text, origin, kLargest, ignored));
  const auto text_of = [&](const char* key) {
    const auto found = config.find(key);
    return found != config.end() && found->is_string() ? found->get<std::string>() : "";
  };
  ConfigPeek peek;
  peek.model_type = text_of("model_type");
  peek.dtype = ParseDType(text_of("dtype"));
  if (!peek.dtype) peek.dtype = ParseDType(text_of("torch_dtype"));
  return peek;
}

}  // namespace headroom
