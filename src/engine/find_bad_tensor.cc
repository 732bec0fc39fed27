// SPDX-License-Identifier: Apache-2.0
#include "engine/find_bad_tensor.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/format.h"
#include "engine/cpu/operands.h"

namespace headroom::engine {
namespace {

using graph::kNoTensor;
using graph::Op;
using graph::Phase;
using graph::TensorId;

bool IsFinite(const TensorView& tensor) {
  if (!IsFloatingPoint(tensor.dtype)) return true;
  bool finite = true;
  for (int64_t row = 0; row < tensor.rows() && finite; ++row) {
    cpu::ForEachChunk(tensor.cols(), [&](int64_t column, int64_t n) {
      cpu::Chunk buffer;
      const float* values = cpu::Read(tensor, row, column, n, buffer);
      finite = finite && std::all_of(values, values + n, [](float v) { return std::isfinite(v); });
    });
  }
  return finite;
}

std::string Describe(const graph::Tensor& tensor, std::string_view op) {
  const std::string& where = tensor.module.empty() ? tensor.name : tensor.module;
  return op.empty() ? tensor.name : Format("{} of {}", op, where);
}

}  // namespace

std::optional<std::string> FirstBadTensor(const Executor& executor, const StepScalars& scalars) {
  const graph::Graph& graph = executor.graph();
  for (const graph::Parameter& parameter : graph.parameters()) {
    if (!IsFinite(executor.View(parameter.weight))) {
      return Describe(graph.tensor(parameter.weight), "");
    }
  }
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    if (op.phase != Phase::kForward) break;
    executor.RunOps(i, i + 1, scalars);
    for (const TensorId output : op.outputs) {
      // The logsumexp of a row that sees no key is minus infinity.
      const bool lse = op.kind == graph::OpKind::kAttention && output == op.outputs.back();
      if (output == kNoTensor || lse) continue;
      if (!IsFinite(executor.View(output))) {
        return Describe(graph.tensor(output), Name(op.kind));
      }
    }
  }
  return std::nullopt;
}

std::string FirstBadGradient(const Executor& executor) {
  for (const graph::Parameter& parameter : executor.graph().parameters()) {
    if (!IsFinite(executor.View(parameter.gradient))) {
      return executor.graph().tensor(parameter.weight).name;
    }
  }
  return "none that is left";
}

}  // namespace headroom::engine
