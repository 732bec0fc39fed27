// SPDX-License-Identifier: Apache-2.0
//
// Which parameters FSDP gathers together, read off their names.
//
// accelerate wraps every transformer layer by itself, the input embedding by itself, the last norm
// with the output head (and with the embedding where the two are tied), and leaves the rest to the
// root:
//
//   model.embed_tokens | model.layers.0 | … | model.layers.11 | model.norm + lm_head | root
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "model/recipe.h"
#include "predict/runtime.h"

namespace headroom::predict {

struct ShardUnit {
  enum class Role { kLayer, kInputEmbedding, kTail, kRoot };
  Role role = Role::kRoot;
  std::vector<std::string> modules;  // paths; for the root ""
  std::vector<size_t> parameters;    // positions in the list that was given
};

// Units in the order in which accelerate 1.15.0 wraps them (fsdp2_prepare_model): layers, input
// embedding, tail, root. A unit without parameters is left out, but for the root, which is always
// last. `tied`: the output head shares the input embedding's weight.
std::vector<ShardUnit> FindShardUnits(const std::vector<std::string>& parameter_names, bool tied);

// The unit that a module's nodes and parameters belong to; the root where no other does. `known` is
// a cache by ModuleId, empty at first.
size_t UnitOfModule(Runtime& runtime, const std::vector<ShardUnit>& units, std::vector<int>& known,
                    ModuleId module);

// Whether a language model's head uses the input embedding's weight: then it has none of its own.
bool TiesOutputHead(const std::vector<std::string>& parameter_names, Task task);

}  // namespace headroom::predict
