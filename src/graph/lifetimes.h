// SPDX-License-Identifier: Apache-2.0
//
// When each tensor's bytes are in use: from the op that first writes them to the last that reads
// them, views counted with the tensor they lie in.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace headroom::graph {

struct Lifetime {
  int32_t first = -1;
  int32_t last = -1;

  bool used() const { return first >= 0; }
};

// By tensor; of views, those of their tensor. What no op touches is not used, but for inputs.
// Inputs live for the whole list, and so do persistent tensors; a kept one lives to its end.
std::vector<Lifetime> LifetimesOf(const Graph& graph);

}  // namespace headroom::graph
