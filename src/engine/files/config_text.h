// SPDX-License-Identifier: Apache-2.0
//
// The config.json of a model that was trained: what transformers' from_pretrained reads.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"
#include "model/recipe.h"

namespace headroom::engine {

// The attributes of `config` with the class of `task` in "architectures" and, where there are any,
// the classes' names in "id2label" and "label2id".
std::string ConfigText(const ModelConfig& config, Task task,
                       const std::vector<std::string>& label_names);

}  // namespace headroom::engine
