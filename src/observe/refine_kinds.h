// SPDX-License-Identifier: Apache-2.0
//
// Kinds that a call stack leaves open and sizes tell.
#pragma once

#include <span>

#include "observe/classify.h"

namespace headroom::observe {

// Finds the gradients of the logits, the score matrices of attention written out, and the masks of
// dropouts. `blocks` are the classes of the replay's blocks, in order.
void RefineKinds(const Replay& replay, std::span<BlockClass> blocks);

}  // namespace headroom::observe
