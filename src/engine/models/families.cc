// SPDX-License-Identifier: Apache-2.0
#include "engine/models/families.h"

#include <array>
#include <optional>
#include <utility>

#include "base/format.h"

namespace headroom::engine {

using graph::GraphBuilder;
using graph::kNoTensor;
using graph::TensorId;

float ModelContext::Rate(std::string_view attribute) const {
  if (!options.dropout) return 0;
  return static_cast<float>(config.MaybeFloat(attribute).value_or(0));
}

TensorId ModelContext::Ids(const std::string& name) {
  return builder.Input(name, DType::kInt32, Shape{builder.rows().count()});
}

TensorId ModelContext::Lengths(const std::string& name) {
  if (!options.padding) return kNoTensor;
  return builder.Input(name, DType::kInt32, Shape{builder.rows().batch});
}

int64_t ModelContext::PaddingRow(int64_t rows) const {
  const std::optional<int64_t> id = config.MaybeInt("pad_token_id");
  if (!id) return -1;
  return *id < 0 ? *id + rows : *id;
}

graph::LossOptions ModelContext::Loss() const {
  return {.label_smoothing = options.label_smoothing, .chunk_rows = options.loss_chunk_rows};
}

Affine LinearWeights(GraphBuilder& builder, const std::string& name, int64_t in, int64_t out,
                     bool bias) {
  return {builder.Weight(name + ".weight", Shape{out, in}),
          bias ? builder.Weight(name + ".bias", Shape{out}) : kNoTensor};
}

Affine NormWeights(GraphBuilder& builder, const std::string& name, int64_t size, bool bias) {
  return {builder.Weight(name + ".weight", Shape{size}),
          bias ? builder.Weight(name + ".bias", Shape{size}) : kNoTensor};
}

TensorId ApplyLinear(GraphBuilder& builder, TensorId x, const Affine& linear, Kind kind) {
  return builder.Linear(x, linear.weight, linear.bias, kind);
}

TensorId NormOf(GraphBuilder& builder, ResidualStream& stream, graph::NormOperands operands) {
  operands.x = stream.branch;
  operands.residual = stream.sum;
  const graph::NormResult result = builder.Norm(operands);
  stream.sum = result.sum;
  return result.y;
}

Affine PackedLinear(GraphBuilder& builder, const std::string& name,
                    const std::vector<PackedPart>& parts, int64_t in, bool bias) {
  std::vector<graph::ParameterPart> weights;
  std::vector<graph::ParameterPart> biases;
  for (const PackedPart& part : parts) {
    weights.push_back({.name = part.name + ".weight", .shape = Shape{part.rows, in}});
    biases.push_back({.name = part.name + ".bias", .shape = Shape{part.rows}});
  }
  return {builder.Packed(name + ".weight", std::move(weights)),
          bias ? builder.Packed(name + ".bias", std::move(biases)) : kNoTensor};
}

Result<graph::ActivationKind> ParseActivation(const std::string& name) {
  using graph::ActivationKind;
  constexpr std::array<std::pair<std::string_view, ActivationKind>, 8> kNames = {{
      {"gelu", ActivationKind::kGelu},
      {"gelu_new", ActivationKind::kGeluTanh},
      {"gelu_pytorch_tanh", ActivationKind::kGeluTanh},
      {"gelu_fast", ActivationKind::kGeluTanh},
      {"relu", ActivationKind::kRelu},
      {"silu", ActivationKind::kSilu},
      {"swish", ActivationKind::kSilu},
      {"tanh", ActivationKind::kTanh},
  }};
  for (const auto& [known, kind] : kNames) {
    if (known == name) return kind;
  }
  return Error::Unsupported(Format(
      "the native engine does not have the activation \"{}\"; it has gelu, gelu_new, relu, silu "
      "and tanh",
      name));
}

void ClassifierHead(ModelContext& context, TensorId logits) {
  context.model.logits = logits;
  context.model.graph.tensor(logits).kept = true;
  if (context.options.head != Head::kLoss) return;
  const TensorId labels =
      context.builder.Input("labels", DType::kInt32, Shape{context.options.rows.batch});
  context.model.loss = context.builder.CrossEntropy(logits, labels, context.Loss());
}

void LanguageHead(ModelContext& context, TensorId x, TensorId weight, TensorId bias,
                  TensorId lengths) {
  GraphBuilder& b = context.builder;
  if (context.options.head == Head::kNextToken) {
    const TensorId last = b.SelectRows(x, lengths, -1);
    context.model.logits = b.Linear(last, weight, bias, Kind::kLogitsLoss);
    context.model.graph.tensor(context.model.logits).kept = true;
    return;
  }
  context.model.loss = b.LinearLoss(x, weight, bias, context.Ids("labels"), context.Loss());
}

Status DecoderHead(ModelContext& context, TensorId x, TensorId words, bool tied, TensorId lengths) {
  GraphBuilder& b = context.builder;
  b.Enter("");
  if (context.options.head == Head::kHidden) {
    HiddenHead(context, x);
    return {};
  }
  const graph::Tensor& table = context.model.graph.tensor(words);
  const Shape shape = table.shape;
  if (context.options.task == Task::kSequenceClassification) {
    b.Enter("score");
    const TensorId score =
        b.Weight("score.weight", Shape{context.config.Int("num_labels"), shape[1]});
    const TensorId last = b.SelectRows(x, lengths, -1);
    ClassifierHead(context, b.Linear(last, score, kNoTensor, Kind::kLogitsLoss));
    return {};
  }
  if (context.options.task != Task::kCausalLm) return UnsupportedNativeTask(context);
  if (tied) {
    context.model.tied = {{"lm_head.weight", table.name}};
  } else {
    words = b.Weight("lm_head.weight", shape);
  }
  b.Enter("lm_head");
  LanguageHead(context, x, words, kNoTensor, lengths);
  return {};
}

void HiddenHead(ModelContext& context, TensorId x) {
  context.model.hidden = x;
  context.model.graph.tensor(x).kept = true;
}

Status CheckPositions(int64_t sequence, int64_t positions) {
  if (sequence <= positions) return {};
  return Error::BadInput(
      Format("a sequence of {} is beyond the {} positions of the model", sequence, positions));
}

Error UnsupportedNativeTask(const ModelContext& context) {
  return Error::Unsupported(Format("the native engine does not train {} for {}",
                                   context.config.model_type(), Name(context.options.task)));
}

}  // namespace headroom::engine
