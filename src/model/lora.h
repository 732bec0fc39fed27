// SPDX-License-Identifier: Apache-2.0
//
// What get_peft_model makes of a model's parameters: the targets keep their weights under
// "base_layer", frozen, and gain two small matrices in fp32 that are trained.
//
//   model.layers.0.self_attn.q_proj.base_layer.weight       [2048, 2048]  frozen
//   model.layers.0.self_attn.q_proj.lora_A.default.weight   [16, 2048]    fp32
//   model.layers.0.self_attn.q_proj.lora_B.default.weight   [2048, 16]    fp32
#pragma once

#include <string>
#include <vector>

#include "model/config.h"
#include "model/lora_config.h"
#include "model/module_list.h"
#include "model/parameter_table.h"

namespace headroom {

// The modules of `modules` that PEFT puts an adapter beside. Fails when there are none: the message
// lists the names there are.
Result<std::vector<ModuleEntry>> LoraTargets(const LoraConfig& lora, const ModelConfig& model,
                                             const std::vector<ModuleEntry>& modules);

// The table of the adapted model, in the order of its named_parameters().
Result<ParameterTable> ApplyLora(const LoraConfig& lora, const ModelConfig& model,
                                 const ParameterTable& table);

// The path of a parameter of an adapted model in the model as it was: without "base_layer" and
// "modules_to_save.default". Empty for what only the adapted model has, or does not use.
std::string PathBeforeLora(const std::string& name);

}  // namespace headroom
