// SPDX-License-Identifier: Apache-2.0
//
// Where a model's config.json is on this machine.
//
// MODEL is a config.json, a folder that holds one, or ORG/NAME in the local Hugging Face cache:
//
//   ~/.cache/huggingface/hub/models--ORG--NAME/refs/main            -> a commit
//   ~/.cache/huggingface/hub/models--ORG--NAME/snapshots/COMMIT/config.json
//
// Nothing is ever downloaded.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headroom {

struct LocatedModel {
  std::string name;         // what to call it: the folder's name or ORG/NAME
  std::string config_text;  // the content of config.json
  std::string origin;       // the file's path, for messages
};

// Finds `model` and reads its config.json. Null when it is a name and neither a file or folder here
// nor in the cache. Fails on what can only be a path (it starts with "/", "./", "../" or "~/", ends
// with "/" or ".json", or has more than one "/") and does not exist, on a folder without a
// config.json and on a file that cannot be read.
Result<std::optional<LocatedModel>> LocateModel(std::string_view model);

// $XDG_CACHE_HOME or ~/.cache. Empty when neither can be told.
std::filesystem::path UserCache();

// The folder in which huggingface_hub keeps downloaded models: $HF_HUB_CACHE, $HF_HOME/hub,
// huggingface/hub in UserCache(). Empty when none can be told.
std::filesystem::path HuggingFaceCache();

}  // namespace headroom
