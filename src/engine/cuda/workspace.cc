// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/workspace.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/cuda/score_groups.h"

namespace headroom::engine::cuda {
namespace {

using graph::Graph;
using graph::Op;
using graph::OpKind;
using graph::Role;
using graph::TensorId;

constexpr int64_t kFloat = sizeof(float);
// Of cuDNN: small tables, and what another version may align otherwise.
constexpr int64_t kCudnnSlack = 16 << 10;

int64_t Elements(const Graph& graph, TensorId id) {
  return id == graph::kNoTensor ? 0 : graph.tensor(id).shape.NumElements();
}

// Where the op belongs, by what it yields or needs; the update of all parameters to none.
std::string ModuleOf(const Graph& graph, const Op& op) {
  if (op.phase == graph::Phase::kOptimizer) return {};
  for (const std::vector<TensorId>* operands : {&op.outputs, &op.scratch}) {
    for (const TensorId id : *operands) {
      if (id != graph::kNoTensor && !graph.tensor(id).module.empty()) {
        return graph.tensor(id).module;
      }
    }
  }
  return {};
}

int64_t Aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

int64_t Columns(const Graph& graph, TensorId id) { return graph.tensor(id).shape[-1]; }

bool HasOutput(const Op& op, size_t position) {
  return position < op.outputs.size() && op.outputs[position] != graph::kNoTensor;
}

// A float for each chunk, in groups of 2^14 elements, and for the last partial one of each.
int64_t GradNormBytes(const Graph& graph, const Op& op) {
  int64_t chunks = 0;
  for (const TensorId id : op.inputs) chunks += Elements(graph, id) / (1 << 14) + 1;
  return 2 * kFloat * chunks;
}

// Where the list of each id's rows ends, and how much of the list is taken.
int64_t EmbeddingBackwardBytes(const Graph& graph, const Op& op) {
  const TensorId table = op.outputs[0];
  if (table == graph::kNoTensor) return 0;
  return static_cast<int64_t>(sizeof(uint32_t)) * (graph.tensor(table).shape[0] + 1);
}

int64_t GemmBytes(int64_t elements) { return std::min(kGemmWorkspace, (1 << 16) + 64 * elements); }

// What the deterministic backward pass of cuDNN 9.14 to 9.19 keeps on Hopper: the gradients of the
// scores in 16 bits, rows in blocks of 64 and columns in blocks of 128, which it multiplies with
// the keys in a second kernel in place of adding float32 parts of dq in any order
// (cudnn-frontend 1.32, scaled_dot_product_flash_attention.h, use_dp_workspace).
int64_t CudnnScoreBytes(int64_t heads, int64_t queries, int64_t keys) {
  return 2 * heads * ((queries + 63) / 64 * 64) * ((keys + 127) / 128 * 128);
}

// And beside them the sums do . o of the rows in float32; where heads share keys, dk and dv of
// every head in 16 bits before they are summed. Equal to what 9.19 asks for on Hopper but for the
// slack, of which it uses 256 bytes, in the forward pass too.
int64_t CudnnBackwardBytes(const graph::OpAttributes& attributes, int64_t keys) {
  const int64_t queries = attributes.sequence;
  const int64_t heads = attributes.heads;
  const int64_t sequences = CudnnSequences(attributes.batch, heads, queries, keys);
  const bool shared = attributes.kv_heads > 0 && attributes.kv_heads != heads;
  const int64_t full_heads = shared ? 4 * heads * keys * attributes.head_dim : 0;
  return Aligned(sequences * CudnnScoreBytes(heads, queries, keys)) +
         Aligned(kFloat * sequences * heads * queries) + Aligned(sequences * full_heads) +
         kCudnnSlack;
}

// What decides which kernels take an attention.
struct AttentionOp {
  AttentionOp(const Graph& graph, const Op& op)
      : attributes(op.attributes),
        pass(op.kind == OpKind::kAttention ? AttentionPass::kForward : AttentionPass::kBackward),
        size(SizeOfAttention(attributes)) {
    const size_t queries = pass == AttentionPass::kForward ? 0 : 1;
    const size_t slopes = pass == AttentionPass::kForward ? 4 : 7;
    dtype = graph.tensor(op.inputs[queries]).dtype;
    alibi = op.inputs.size() > slopes && op.inputs[slopes] != graph::kNoTensor;
  }
  int64_t lines() const { return size.batch * size.heads * size.queries; }

  const graph::OpAttributes& attributes;
  AttentionPass pass;
  AttentionSize size;
  DType dtype{};
  bool alibi = false;
};

bool CudnnMayServe(const AttentionOp& op) {
  return IsHalf(op.dtype) && op.size.head_dim % 8 == 0 && !op.alibi && !op.attributes.accumulate;
}

// Of the kernels of flash_attention.cu, beside do . o.
int64_t TensorCoreBytes(const AttentionOp& op) {
  const int64_t each = ScoreBytes(op.size.heads, op.size.queries, op.size.keys);
  // Without dropout it is cheaper to compute the scores again.
  if (op.attributes.dropout == 0 || each > kScoreWorkspace) return 0;
  return std::min(op.size.batch, kScoreWorkspace / each) * each;
}

int64_t ProductBytes(const AttentionOp& op) {
  const auto groups = GroupScores(op.size, op.dtype, op.pass);
  return groups ? groups->bytes() : 0;
}

int64_t AttentionBytes(const Graph& graph, const Op& of) {
  const AttentionOp op(graph, of);
  const bool tensor_cores = TensorCoresTake(op.attributes, op.dtype, op.alibi);
  const bool cudnn = CudnnMayServe(op);
  if (op.pass == AttentionPass::kForward) {
    return std::max(tensor_cores ? 0 : ProductBytes(op), cudnn ? kCudnnSlack : 0);
  }
  const int64_t own =
      DeltaBytes(op.lines()) + (tensor_cores ? TensorCoreBytes(op) : ProductBytes(op));
  return cudnn ? std::max(own, CudnnBackwardBytes(op.attributes, op.size.keys)) : own;
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
      return (HasOutput(op, 4) ? 3 : 2) * kFloat * kNormParts * Columns(graph, op.inputs[0]);
    case OpKind::kActivationBackward:
      return HasOutput(op, 1) ? kFloat * kSumParts * Columns(graph, op.inputs[0]) : 0;
    case OpKind::kEmbeddingBackward:
      return std::max(kFloat * kSumParts * Columns(graph, op.inputs[0]),
                      EmbeddingBackwardBytes(graph, op));
    case OpKind::kAttention:
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

int64_t CudnnSequences(int64_t batch, int64_t heads, int64_t queries, int64_t keys) {
  const int64_t fit = std::max<int64_t>(kCudnnWorkspace / CudnnScoreBytes(heads, queries, keys), 1);
  int64_t sequences = std::min(batch, fit);
  while (batch % sequences != 0) --sequences;
  return sequences;
}

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
                                     .module = ModuleOf(graph, op),
                                     .dtype = DType::kUInt8,
                                     .shape = Shape{bytes},
                                     .role = Role::kWorkspace});
    graph.mutable_ops()[i].scratch.push_back(room);
  }
}

}  // namespace headroom::engine::cuda
