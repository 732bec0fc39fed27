// SPDX-License-Identifier: Apache-2.0
#include "graph/precision.h"

#include <cstddef>

namespace headroom::graph {

void LowerPrecision(Graph& graph, DType compute, bool masters) {
  if (compute == DType::kFloat32) return;
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    Tensor& tensor = graph.tensor(static_cast<TensorId>(i));
    if (tensor.dtype == DType::kFloat32 && !tensor.full_precision) tensor.dtype = compute;
  }
  if (!masters) return;
  for (Parameter& parameter : graph.parameters()) {
    Tensor master = graph.tensor(parameter.weight);
    master.dtype = DType::kFloat32;
    master.role = Role::kMaster;
    parameter.master = graph.Add(std::move(master));
  }
}

}  // namespace headroom::graph
