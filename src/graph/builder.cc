// SPDX-License-Identifier: Apache-2.0
#include "graph/builder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace headroom::graph {

void GraphBuilder::Enter(std::string module, int layer) {
  module_ = std::move(module);
  layer_ = layer;
}

OpAttributes GraphBuilder::Attributes() const {
  OpAttributes attributes;
  attributes.layer = layer_;
  attributes.batch = rows_.batch;
  attributes.sequence = rows_.sequence;
  return attributes;
}

void GraphBuilder::Append(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
                          OpAttributes attributes, std::vector<TensorId> scratch) {
  graph_.Append({.kind = kind,
                 .phase = Phase::kForward,
                 .inputs = std::move(inputs),
                 .outputs = std::move(outputs),
                 .scratch = std::move(scratch),
                 .attributes = attributes});
}

TensorId GraphBuilder::Activated(std::string_view name, Shape shape, Kind kind,
                                 bool full_precision) {
  return graph_.Add({.name = std::string(name),
                     .module = module_,
                     .shape = shape,
                     .role = Role::kActivation,
                     .kind = kind,
                     .full_precision = full_precision});
}

int64_t GraphBuilder::RowsOf(TensorId x) const {
  const Shape& shape = graph_.tensor(x).shape;
  return shape.NumElements() / shape[-1];
}

// ---- What lies there before the first op ----

TensorId GraphBuilder::AddParameter(std::string name, Shape shape, Parameter parameter) {
  parameter.weight = graph_.Add(
      {.name = std::move(name), .module = module_, .shape = shape, .role = Role::kWeight});
  const TensorId weight = parameter.weight;
  graph_.AddParameter(std::move(parameter));
  return weight;
}

TensorId GraphBuilder::Weight(std::string name, Shape shape) {
  Parameter parameter{.parts = {{.name = name, .shape = shape}}, .decays = shape.rank() > 1};
  return AddParameter(std::move(name), shape, std::move(parameter));
}

TensorId GraphBuilder::EmbeddingTable(std::string name, Shape shape) {
  Parameter parameter{.parts = {{.name = name, .shape = shape}}, .embedding = true};
  return AddParameter(std::move(name), shape, std::move(parameter));
}

TensorId GraphBuilder::Packed(std::string name, std::vector<ParameterPart> parts) {
  HEADROOM_CHECK(!parts.empty(), "a packed parameter without parts");
  Shape shape = parts.front().shape;
  int64_t rows = 0;
  for (ParameterPart& part : parts) {
    part.first_row = rows;
    rows += part.shape[0];
  }
  shape[0] = rows;
  Parameter parameter{.parts = std::move(parts), .decays = shape.rank() > 1};
  return AddParameter(std::move(name), shape, std::move(parameter));
}

TensorId GraphBuilder::Input(std::string name, DType dtype, Shape shape) {
  return graph_.Add(
      {.name = std::move(name), .dtype = dtype, .shape = shape, .role = Role::kInput});
}

TensorId GraphBuilder::Buffer(std::string name, Shape shape) {
  return graph_.Add({.name = std::move(name),
                     .module = module_,
                     .shape = shape,
                     .role = Role::kBuffer,
                     .kind = Kind::kPosition,
                     .full_precision = true});
}

// ---- Ops ----

TensorId GraphBuilder::Embedding(const EmbeddingOperands& operands) {
  const TensorId y = Activated(
      "embedding", Shape{rows_.count(), graph_.tensor(operands.table).shape[1]}, Kind::kEmbedding);
  OpAttributes attributes = Attributes();
  attributes.position_offset = operands.position_offset;
  attributes.embedding_scale = operands.scale;
  attributes.padding_row = operands.padding_row;
  Append(OpKind::kEmbedding,
         {operands.ids, operands.table, operands.positions, operands.types, operands.type_ids}, {y},
         attributes);
  return y;
}

TensorId GraphBuilder::Linear(TensorId x, TensorId weight, TensorId bias, Kind kind,
                              bool transposed) {
  const int64_t columns = graph_.tensor(weight).shape[transposed ? 1 : 0];
  const TensorId y = Activated("linear", Shape{RowsOf(x), columns}, kind);
  OpAttributes attributes = Attributes();
  attributes.transposed = transposed;
  Append(OpKind::kLinear, {x, weight, bias}, {y}, attributes);
  return y;
}

NormResult GraphBuilder::Norm(const NormOperands& operands) {
  const Shape shape = graph_.tensor(operands.x).shape;
  const Shape statistics{RowsOf(operands.x)};
  const bool centred = operands.norm == NormKind::kLayerNorm;
  NormResult result{.y = Activated("norm", shape, Kind::kNorm), .sum = operands.x};
  TensorId stored = kNoTensor;
  if (operands.residual != kNoTensor) {
    stored = result.sum = Activated("residual", shape, Kind::kResidual);
  }
  const TensorId mean = centred ? Activated("mean", statistics, Kind::kNorm, true) : kNoTensor;
  const TensorId rstd = Activated("rstd", statistics, Kind::kNorm, true);
  OpAttributes attributes = Attributes();
  attributes.norm = operands.norm;
  attributes.eps = operands.eps;
  if (operands.residual != kNoTensor && operands.dropout > 0) {
    attributes.dropout = operands.dropout;
    attributes.stream = ++streams_;
  }
  Append(OpKind::kNorm, {operands.x, operands.residual, operands.gamma, operands.beta},
         {result.y, stored, mean, rstd}, attributes);
  return result;
}

TensorId GraphBuilder::Attention(const AttentionOperands& operands) {
  const int64_t width = int64_t{operands.heads} * operands.head_dim;
  const TensorId o = Activated("attention", Shape{RowsOf(operands.q), width}, Kind::kAttention);
  const TensorId lse =
      Activated("lse", Shape{rows_.batch, operands.heads, rows_.sequence}, Kind::kAttention, true);
  OpAttributes attributes = Attributes();
  attributes.heads = operands.heads;
  attributes.kv_heads = operands.kv_heads;
  attributes.head_dim = operands.head_dim;
  attributes.causal = operands.causal;
  attributes.key_sequence = operands.key_sequence;
  attributes.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(operands.head_dim)));
  if (operands.dropout > 0) {
    attributes.dropout = operands.dropout;
    attributes.stream = ++streams_;
  }
  Append(OpKind::kAttention,
         {operands.q, operands.k, operands.v, operands.key_lengths, operands.slopes}, {o, lse},
         attributes);
  return o;
}

void GraphBuilder::Rope(TensorId x, TensorId cosine, TensorId sine, int heads, int head_dim) {
  OpAttributes attributes = Attributes();
  attributes.heads = heads;
  attributes.head_dim = head_dim;
  Append(OpKind::kRope, {x, cosine, sine}, {x}, attributes);
}

TensorId GraphBuilder::Activation(TensorId x, ActivationKind activation) {
  const TensorId y = Activated("activation", graph_.tensor(x).shape, Kind::kMlp);
  OpAttributes attributes = Attributes();
  attributes.activation = activation;
  Append(OpKind::kActivation, {x}, {y}, attributes);
  return y;
}

TensorId GraphBuilder::Glu(TensorId gate_up, ActivationKind activation) {
  const Shape& shape = graph_.tensor(gate_up).shape;
  const TensorId y = Activated("glu", Shape{RowsOf(gate_up), shape[-1] / 2}, Kind::kMlp);
  OpAttributes attributes = Attributes();
  attributes.activation = activation;
  Append(OpKind::kGlu, {gate_up}, {y}, attributes);
  return y;
}

TensorId GraphBuilder::Dropout(TensorId x, float rate) {
  if (rate <= 0) return x;
  const TensorId y = Activated("dropout", graph_.tensor(x).shape, Kind::kDropout);
  OpAttributes attributes = Attributes();
  attributes.dropout = rate;
  attributes.stream = ++streams_;
  Append(OpKind::kDropout, {x}, {y}, attributes);
  return y;
}

TensorId GraphBuilder::Add(TensorId a, TensorId b) {
  const TensorId y = Activated("sum", graph_.tensor(a).shape, Kind::kResidual);
  Append(OpKind::kAdd, {a, b}, {y}, Attributes());
  return y;
}

TensorId GraphBuilder::SelectRows(TensorId x, TensorId lengths, int row) {
  const TensorId y =
      Activated("selected", Shape{rows_.batch, graph_.tensor(x).shape[-1]}, Kind::kOther);
  OpAttributes attributes = Attributes();
  attributes.row = row;
  Append(OpKind::kSelectRows, {x, lengths}, {y}, attributes);
  return y;
}

TensorId GraphBuilder::LossScalar() {
  return graph_.Add({.name = "loss",
                     .shape = Shape{1},
                     .role = Role::kBuffer,
                     .kind = Kind::kLogitsLoss,
                     .full_precision = true});
}

TensorId GraphBuilder::CrossEntropy(TensorId logits, TensorId labels, const LossOptions& options) {
  const TensorId loss = LossScalar();
  OpAttributes attributes = Attributes();
  attributes.ignore_index = options.ignore_index;
  attributes.label_smoothing = options.label_smoothing;
  Append(OpKind::kCrossEntropy, {logits, labels}, {loss}, attributes);
  return loss;
}

TensorId GraphBuilder::LinearLoss(TensorId x, TensorId weight, TensorId bias, TensorId labels,
                                  const LossOptions& options) {
  const TensorId loss = LossScalar();
  const int64_t rows = RowsOf(x);
  const int64_t at_a_time = options.chunk_rows > 0 ? std::min(options.chunk_rows, rows) : rows;
  const TensorId logits = graph_.Add({.name = "logits",
                                      .module = module_,
                                      .shape = Shape{at_a_time, graph_.tensor(weight).shape[0]},
                                      .role = Role::kTemporary,
                                      .kind = Kind::kLogitsLoss});
  OpAttributes attributes = Attributes();
  attributes.ignore_index = options.ignore_index;
  attributes.label_smoothing = options.label_smoothing;
  attributes.chunks = static_cast<int>((rows + at_a_time - 1) / at_a_time);
  Append(OpKind::kLinearLoss, {x, weight, bias, labels}, {loss}, attributes, {logits});
  return loss;
}

TensorId GraphBuilder::Columns(TensorId x, int64_t first, int64_t count) {
  const Tensor& whole = graph_.tensor(x);
  const int64_t stride = whole.row_stride == 0 ? whole.shape[-1] : whole.row_stride;
  return graph_.AddView(
      x, {.name = "columns", .shape = Shape{RowsOf(x), count}, .row_stride = stride}, first);
}

}  // namespace headroom::graph
