// SPDX-License-Identifier: Apache-2.0
//
// LowerPrecision: a float32 graph becomes one of 16 bits.
//
//                 fp32    bf16, fp16              lean: bf16 without masters
//   weights       4       2 + 4 of the master     2          bytes per parameter
//   activations   4       2                       2
//
// Statistics of norms and attention, losses and rotary tables stay float32.
#pragma once

#include "base/dtype.h"
#include "graph/graph.h"

namespace headroom::graph {

// To be called on a forward graph, before gradients and the optimizer are appended. float32
// changes nothing. With `masters`, every weight gets a float32 one, which the optimizer updates.
void LowerPrecision(Graph& graph, DType compute, bool masters);

}  // namespace headroom::graph
