// SPDX-License-Identifier: Apache-2.0
//
// What a config class computes when it is built: the __post_init__ methods and the rotary-embedding
// clean-up of transformers 5.17.0.
//
//   llama, file {"hidden_size": 2048, "num_attention_heads": 32, "rope_theta": 5e5}
//   -> head_dim 64, num_key_value_heads 32,
//      rope_parameters {"rope_theta": 5e5, "rope_type": "default"}
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "model/config_defaults.h"

namespace headroom {

// Fills the null attributes of `attributes` (the file over the defaults, canonical names, types and
// ranges checked) that `config_class` derives from others. Fails on what the class itself refuses:
// layer lists of another length than the layers, rotary parameters of the wrong type.
Status DeriveAttributes(const ConfigClass& config_class, nlohmann::json& attributes);

}  // namespace headroom
