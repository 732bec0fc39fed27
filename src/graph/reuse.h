// SPDX-License-Identifier: Apache-2.0
//
// ReuseInputs: an element-wise op whose input ends with it writes its output into the same bytes.
//
//   dx = gelu_backward(dy, x)       dy ends here: dx is dy's bytes
#pragma once

#include "graph/graph.h"

namespace headroom::graph {

// To be called on a complete list: backward and optimizer appended. Outputs become views.
void ReuseInputs(Graph& graph);

}  // namespace headroom::graph
