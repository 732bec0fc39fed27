// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/workspace.h"

#include <algorithm>

namespace headroom::engine::cuda {
namespace {

using graph::Graph;
using graph::Op;
using graph::OpKind;
using graph::Role;
using graph::TensorId;

constexpr int64_t kFloat = sizeof(float);

int64_t Elements(const Graph& graph, TensorId id) {
  return id == graph::kNoTensor ? 0 : graph.tensor(id).shape.NumElements();
}

int64_t Columns(const Graph& graph, TensorId id) { return graph.tensor(id).shape[-1]; }

// A float for each chunk, in groups of 2^14 elements, and for the last partial one of each.
int64_t GradNormBytes(const Graph& graph, const Op& op) {
  int64_t chunks = 0;
  for (const TensorId id : op.inputs) chunks += Elements(graph, id) / (1 << 14) + 1;
  return 2 * kFloat * chunks;
}

int64_t GemmBytes(int64_t elements) { return std::min(kGemmWorkspace, (1 << 16) + 64 * elements); }

int64_t AttentionBytes(const Graph& graph, const Op& op) {
  const graph::OpAttributes& attributes = op.attributes;
  const int64_t delta = kFloat * Elements(graph, op.inputs[5]);
  const bool tensor_cores = IsHalf(graph.tensor(op.inputs[1]).dtype) &&
                            (attributes.head_dim == 64 || attributes.head_dim == 128);
  const int64_t keys = attributes.key_sequence > 0 ? attributes.key_sequence : attributes.sequence;
  const int64_t each = ScoreBytes(attributes.heads, attributes.sequence, keys);
  // Without dropout it is cheaper to compute the scores again.
  if (!tensor_cores || attributes.dropout == 0 || each > kScoreWorkspace) return delta;
  const int64_t sequences = std::min(attributes.batch, kScoreWorkspace / each);
  return (delta + 255) / 256 * 256 + sequences * each;
}

int64_t WorkspaceBytes(const Graph& graph, const Op& op) {
  switch (op.kind) {
    case OpKind::kLinear:
    case OpKind::kLinearBackwardInput:
      return GemmBytes(Elements(graph, op.outputs[0]));
    case OpKind::kLinearBackwardWeight:
      return std::max(GemmBytes(Elements(graph, op.outputs[0])),
                      kFloat * kSumParts * Columns(graph, op.inputs[0]));
    case OpKind::kLinearLoss:
      return std::max(GemmBytes(Elements(graph, op.scratch[0]) + Elements(graph, op.inputs[1])),
                      kFloat * std::max(kSumParts * Columns(graph, op.scratch[0]),
                                        graph.tensor(op.scratch[0]).shape[0]));
    case OpKind::kCrossEntropy:
      return kFloat * Elements(graph, op.inputs[1]);
    case OpKind::kNormBackward:
      return 2 * kFloat * kNormParts * Columns(graph, op.inputs[0]);
    case OpKind::kEmbeddingBackward:
      return kFloat * kSumParts * Columns(graph, op.inputs[0]);
    case OpKind::kAttentionBackward:
      return AttentionBytes(graph, op);
    case OpKind::kGradNorm:
      return GradNormBytes(graph, op);
    case OpKind::kUpdate:
      return 256;
    default:
      return 0;
  }
}

}  // namespace

void AddWorkspaces(Graph& graph) {
  constexpr int64_t kColumns = 64;
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    if (op.kind == OpKind::kLinearLoss) {
      Shape& logits = graph.tensor(op.scratch[0]).shape;
      logits[1] = (logits[1] + kColumns - 1) / kColumns * kColumns;
    }
    const int64_t bytes = WorkspaceBytes(graph, op);
    if (bytes == 0) continue;
    const TensorId room = graph.Add({.name = "workspace",
                                     .dtype = DType::kUInt8,
                                     .shape = Shape{bytes},
                                     .role = Role::kWorkspace});
    graph.mutable_ops()[i].scratch.push_back(room);
  }
}

}  // namespace headroom::engine::cuda
