// SPDX-License-Identifier: Apache-2.0
//
// What a process that trains on a GPU holds there beside its arena, as NVML counts it. Known before
// the start; what of it depends on the model (page tables, graphs) stays within 64 MiB.
#pragma once

#include <vector>

#include "ledger/ledger.h"

namespace headroom::engine::cuda {

// Measured on an H200 with driver 580.159, CUDA 13.0, cuDNN 9.19 (docs/performance.md).
std::vector<ContextPart> OutsideArena();

}  // namespace headroom::engine::cuda
