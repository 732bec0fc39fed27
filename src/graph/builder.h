// SPDX-License-Identifier: Apache-2.0
//
// GraphBuilder: how a model's forward pass is written down.
//
//   GraphBuilder b(graph, {.batch = 4, .sequence = 512});
//   TensorId x = b.Embedding({.ids = ids, .table = b.Weight("wte.weight", {50257, 768})});
//   b.Enter("h.0", 0);
//   TensorId qkv = b.Linear(x, w, bias, Kind::kAttention);
//
// Everything is built in float32: LowerPrecision turns the graph into one of 16 bits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace headroom::graph {

struct Rows {
  int64_t batch = 1;
  int64_t sequence = 1;
  int64_t count() const { return batch * sequence; }
};

struct EmbeddingOperands {
  TensorId ids = kNoTensor;
  TensorId table = kNoTensor;
  TensorId positions = kNoTensor;
  TensorId types = kNoTensor;
  TensorId type_ids = kNoTensor;
  int position_offset = 0;
  float scale = 1;
  int64_t padding_row = -1;  // of the table; gets no gradient from here
};

struct NormOperands {
  TensorId x = kNoTensor;
  TensorId residual = kNoTensor;  // absent: x is normalised
  TensorId gamma = kNoTensor;
  TensorId beta = kNoTensor;
  NormKind norm = NormKind::kLayerNorm;
  float eps = 1e-5F;
  float dropout = 0;  // of x, before the residual is added
};

struct NormResult {
  TensorId y = kNoTensor;
  TensorId sum = kNoTensor;  // residual + dropout(x); x where there is no residual
};

struct AttentionOperands {
  TensorId q = kNoTensor;
  TensorId k = kNoTensor;
  TensorId v = kNoTensor;
  TensorId key_lengths = kNoTensor;
  TensorId slopes = kNoTensor;
  int heads = 1;
  int kv_heads = 1;
  int head_dim = 1;
  bool causal = false;
  float dropout = 0;
  int64_t key_sequence = 0;  // of another sequence than the queries'; 0: the same
};

struct LossOptions {
  int ignore_index = -100;
  float label_smoothing = 0;
  int64_t chunk_rows = 0;  // logits of so many rows exist at a time; 0: all
};

class GraphBuilder {
 public:
  GraphBuilder(Graph& graph, Rows rows) : graph_(graph), rows_(rows) {}

  Graph& graph() { return graph_; }
  const Rows& rows() const { return rows_; }
  // What follows has another batch of sequences: a decoder's.
  void SetRows(Rows rows) { rows_ = rows; }
  // What follows belongs to this module and position in the stack.
  void Enter(std::string module, int layer = -1);

  // A parameter by its name in a checkpoint. Those of one dimension do not decay.
  TensorId Weight(std::string name, Shape shape);
  TensorId EmbeddingTable(std::string name, Shape shape);
  // One parameter of several in a checkpoint, one above the other. REQUIRES: equal columns.
  TensorId Packed(std::string name, std::vector<ParameterPart> parts);
  TensorId Input(std::string name, DType dtype, Shape shape);
  // A float32 constant, filled once.
  TensorId Buffer(std::string name, Shape shape);

  TensorId Embedding(const EmbeddingOperands& operands);
  // y [N, M] = x [N, K] * weight + bias; `transposed`: the weight is [K, M].
  TensorId Linear(TensorId x, TensorId weight, TensorId bias, Kind kind, bool transposed = false);
  NormResult Norm(const NormOperands& operands);
  TensorId Attention(const AttentionOperands& operands);
  // In place, over `heads` heads that lie side by side.
  void Rope(TensorId x, TensorId cosine, TensorId sine, int heads, int head_dim);
  TensorId Activation(TensorId x, ActivationKind activation);
  TensorId Glu(TensorId gate_up, ActivationKind activation);
  TensorId Dropout(TensorId x, float rate);
  TensorId Add(TensorId a, TensorId b);
  // One row of each sequence: the first, or for -1 the last that is not padding.
  TensorId SelectRows(TensorId x, TensorId lengths, int row);
  // Both return the loss: a float32 scalar, summed over the rows whose label is not ignored.
  TensorId CrossEntropy(TensorId logits, TensorId labels, const LossOptions& options);
  TensorId LinearLoss(TensorId x, TensorId weight, TensorId bias, TensorId labels,
                      const LossOptions& options);

  // Columns [first, first + count) of x.
  TensorId Columns(TensorId x, int64_t first, int64_t count);

 private:
  TensorId Activated(std::string_view name, Shape shape, Kind kind, bool full_precision = false);
  TensorId AddParameter(std::string name, Shape shape, Parameter parameter);
  OpAttributes Attributes() const;
  void Append(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
              OpAttributes attributes, std::vector<TensorId> scratch = {});
  TensorId LossScalar();
  int64_t RowsOf(TensorId x) const;

  Graph& graph_;
  Rows rows_;
  std::string module_;
  int layer_ = -1;
  uint32_t streams_ = 0;  // of dropout, so far
};

}  // namespace headroom::graph
