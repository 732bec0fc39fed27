// SPDX-License-Identifier: Apache-2.0
//
// What any config.json says, whatever its model type.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/result.h"

namespace headroom {

struct ConfigPeek {
  std::string model_type;      // empty when it names none
  std::optional<DType> dtype;  // "dtype" or "torch_dtype"
};

// Fails on what is no JSON object; `origin` names the file.
Result<ConfigPeek> PeekConfig(std::string_view text, std::string_view origin);

}  // namespace headroom
