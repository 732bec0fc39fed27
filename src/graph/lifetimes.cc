// SPDX-License-Identifier: Apache-2.0
#include "graph/lifetimes.h"

#include <algorithm>

namespace headroom::graph {

std::vector<Lifetime> LifetimesOf(const Graph& graph) {
  std::vector<Lifetime> lifetimes(graph.tensors().size());
  const auto end = static_cast<int32_t>(graph.ops().size()) - 1;
  const auto touch = [&](const std::vector<TensorId>& operands, int32_t op) {
    for (const TensorId id : operands) {
      if (id == kNoTensor) continue;
      Lifetime& lifetime = lifetimes[Index(graph.Root(id))];
      if (!lifetime.used()) lifetime.first = op;
      lifetime.last = op;
    }
  };
  for (int32_t i = 0; i <= end; ++i) {
    const Op& op = graph.ops()[static_cast<size_t>(i)];
    touch(op.inputs, i);
    touch(op.outputs, i);
    touch(op.scratch, i);
  }
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const auto id = static_cast<TensorId>(i);
    const Tensor& tensor = graph.tensor(id);
    Lifetime& lifetime = lifetimes[i];
    if (tensor.base) {
      lifetime = lifetimes[Index(*tensor.base)];
    } else if (tensor.role == Role::kInput || IsPersistent(tensor.role)) {
      lifetime = {0, std::max(end, 0)};
    } else if (tensor.kept && lifetime.used()) {
      lifetime.last = end;
    }
  }
  // A view may stand before its tensor.
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (tensor.base) lifetimes[i] = lifetimes[Index(*tensor.base)];
  }
  return lifetimes;
}

}  // namespace headroom::graph
