// SPDX-License-Identifier: Apache-2.0
//
// Everything a run reads: the model's config and weights, its tokenizer, the examples.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/checkpoint.h"
#include "engine/data/tokenizer.h"
#include "engine/trainer.h"
#include "model/config.h"
#include "train_options.h"

namespace headroom::cli {

struct TrainInputs {
  std::string name;  // of the model
  ModelConfig config;
  std::filesystem::path weights = {};  // empty: initialised
  std::optional<engine::Tokenizer> tokenizer = {};
  engine::TrainData data = {};
  engine::ModelFiles files = {};              // to save beside the weights
  std::vector<std::string> assumptions = {};  // what nobody asked for
};

// Decides the task, sets it in `command`, and reads all. Fails with file and line where a file is
// wrong.
Result<TrainInputs> ReadTrainInputs(TrainCommand& command);

}  // namespace headroom::cli
