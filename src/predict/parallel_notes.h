// SPDX-License-Identifier: Apache-2.0
//
// What a prediction of one rank of several rests on, in a user's words.
#pragma once

#include <string>
#include <vector>

#include "ledger/ledger.h"
#include "model/config.h"
#include "model/recipe.h"

namespace headroom::predict {

// One line each; none for Trainer in one process.
std::vector<std::string> ParallelAssumptions(const Recipe& recipe, const ModelConfig& config);

// What several ranks hold outside the allocator.
std::vector<ContextPart> ParallelContext(const Recipe& recipe);

}  // namespace headroom::predict
