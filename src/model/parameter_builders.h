// SPDX-License-Identifier: Apache-2.0
//
// One function per architecture family that lists its parameters and buffers, in the order of
// named_parameters(); the files are parameters_<family>.cc. See parameter_table.h.
#pragma once

#include <string_view>

#include "model/config.h"
#include "model/parameter_table.h"
#include "model/recipe.h"

namespace headroom {

Result<ParameterTable> BertParameters(const ModelConfig& config, Task task);
Result<ParameterTable> Gpt2Parameters(const ModelConfig& config, Task task);
Result<ParameterTable> LlamaParameters(const ModelConfig& config, Task task);

// ---- For the builders ----

// "task masked-lm is not modelled for model_type "llama"".
Error UnsupportedTask(const ModelConfig& config, Task task);
// An error unless the attribute `size` is a multiple of the attribute `parts`.
Status CheckDivisible(const ModelConfig& config, std::string_view size, std::string_view parts);

}  // namespace headroom
