// SPDX-License-Identifier: Apache-2.0
//
// What a process holds on the GPU outside PyTorch's allocator, and what a prediction assumes.
#pragma once

#include <string>
#include <vector>

#include "ledger/ledger.h"
#include "model/recipe.h"
#include "predict/predict.h"

namespace headroom::predict {

// The CUDA context and the libraries' kernels, as NVML counts them in the process's figure.
std::vector<ContextPart> OutsideAllocator(const Platform& platform, AttnImplementation attn,
                                          const Recipe& recipe);

// One line for each thing that was taken as given, the most important first.
std::vector<std::string> Assumptions(const Recipe& recipe, const Platform& platform,
                                     AttnImplementation attn);

}  // namespace headroom::predict
