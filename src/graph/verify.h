// SPDX-License-Identifier: Apache-2.0
//
// Verify: what every graph must hold before it is planned and executed.
//
// Operands are there, of the shapes that op.h states; what an op reads has been written; views lie
// inside their tensors; what is updated has a gradient. It shares no code with what builds graphs.
#pragma once

#include "base/result.h"
#include "graph/graph.h"

namespace headroom::graph {

// Names the first op, by position, that breaks a rule.
Status Verify(const Graph& graph);

}  // namespace headroom::graph
