// SPDX-License-Identifier: Apache-2.0
//
// How a model comes onto the device: what Weights(runtime, table, recipe) plays.
//
// from_pretrained with device_map first takes one block as large as all weights and gives it back,
// so that one segment serves the tensors that follow; quantised weights arrive in 16 bit, one at a
// time, and so the highest point of loading can lie above the steady state.
#pragma once

#include "base/result.h"
#include "model/config.h"
#include "model/parameter_table.h"
#include "model/recipe.h"

namespace headroom::predict {

// The parameters that bitsandbytes stores quantised: the weights of linear layers apart from the
// model's head (get_keys_to_not_convert).
bool IsQuantized(const ParameterSpec& spec, const Quantization& quantization);

// How many parameters it stores quantised. Fails where there are none.
Result<int64_t> QuantizedParameters(const ModelConfig& config, const ParameterTable& table,
                                    const Quantization& quantization);

// What caching_allocator_warmup takes before the first tensor is read, on a device of `memory`.
Bytes WarmUpBytes(const ParameterTable& table, const Recipe& recipe, Bytes memory);

}  // namespace headroom::predict
