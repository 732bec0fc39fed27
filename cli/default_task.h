// SPDX-License-Identifier: Apache-2.0
//
// Which task a config is for when nobody says.
#pragma once

#include <string>

#include "model/config.h"
#include "model/recipe.h"

namespace headroom::cli {

struct DefaultTask {
  Task task = Task::kCausalLm;
  std::string because;  // "the config's architectures name BertForMaskedLM"
};

// From the task class that "architectures" names; without one, or with a pretraining head, from
// what the model type is used for: encoders classify sequences, the rest are language models.
DefaultTask DefaultTaskOf(const ModelConfig& config);

}  // namespace headroom::cli
