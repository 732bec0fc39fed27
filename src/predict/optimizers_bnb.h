// SPDX-License-Identifier: Apache-2.0
//
// The optimizers of bitsandbytes: states in 8 bit by blocks of 256, or in 32 bit.
//
//   a matrix of 1,000,000:  state1 and state2 1,000,000 B each, absmax1 and absmax2 15,628 B each
//
// Parameters of fewer than 4096 elements keep 32 bit, and so do embeddings, as Trainer asks. Paged
// states of 100,000 elements and more lie in managed memory, outside PyTorch's allocator.
#pragma once

#include <memory>
#include <vector>

#include "model/recipe.h"
#include "predict/optimizers.h"

namespace headroom::predict {

// REQUIRES: `optim` is one of bitsandbytes.
std::unique_ptr<Optimizer> MakeBitsAndBytesOptimizer(
    Optim optim, Runtime& runtime, const std::vector<OptimizerParameter>& parameters);

}  // namespace headroom::predict
