// SPDX-License-Identifier: Apache-2.0
//
// One builder per family of models, and what they share.
#pragma once

#include <string>
#include <string_view>

#include "engine/models/model_graph.h"

namespace headroom::engine {

// What a builder works with.
struct ModelContext {
  const ModelConfig& config;
  const ModelGraphOptions& options;
  ModelGraph& model;
  graph::GraphBuilder builder;

  ModelContext(const ModelConfig& c, const ModelGraphOptions& o, ModelGraph& m)
      : config(c), options(o), model(m), builder(m.graph, o.rows) {}

  // A rate of dropout by its attribute, 0 in evaluation.
  float Rate(std::string_view attribute) const;
  int64_t max_sequence() const {
    return options.max_sequence > 0 ? options.max_sequence : options.rows.sequence;
  }
  // int32 [rows] inputs.
  graph::TensorId Ids(const std::string& name);
  // int32 [B], or absent where nothing is padded.
  graph::TensorId Lengths(const std::string& name);
  // torch.nn.Embedding's padding_idx of a table of `rows`: pad_token_id, negative ones from the
  // end.
  int64_t PaddingRow(int64_t rows) const;
  graph::LossOptions Loss() const;
};

Status BuildBert(ModelContext& context);
Status BuildGpt2(ModelContext& context);
Status BuildLlama(ModelContext& context);
Status BuildBart(ModelContext& context);

// weight and bias of a torch.nn.Linear or LayerNorm.
struct Affine {
  graph::TensorId weight = graph::kNoTensor;
  graph::TensorId bias = graph::kNoTensor;
};
Affine LinearWeights(graph::GraphBuilder& builder, const std::string& name, int64_t in, int64_t out,
                     bool bias = true);
Affine NormWeights(graph::GraphBuilder& builder, const std::string& name, int64_t size,
                   bool bias = true);
graph::TensorId ApplyLinear(graph::GraphBuilder& builder, graph::TensorId x, const Affine& linear,
                            Kind kind);

// A tensor on its way through layers whose norms come first: what the next norm adds up, a branch,
// and the sum so far where there is one.
struct ResidualStream {
  graph::TensorId branch = graph::kNoTensor;
  graph::TensorId sum = graph::kNoTensor;
};
// The norm of the stream, which then stands at the sum. x and residual of `operands` are set here.
graph::TensorId NormOf(graph::GraphBuilder& builder, ResidualStream& stream,
                       graph::NormOperands operands);

// Projections of a checkpoint, one above the other: `names` with .weight and .bias, and the rows of
// each.
struct PackedPart {
  std::string name;
  int64_t rows = 0;
};
Affine PackedLinear(graph::GraphBuilder& builder, const std::string& name,
                    const std::vector<PackedPart>& parts, int64_t in, bool bias);

// transformers' ACT2FN.
Result<graph::ActivationKind> ParseActivation(const std::string& name);

// Ends a classifier of whole sequences: logits of `x` [B, C], and the loss with head kLoss.
void ClassifierHead(ModelContext& context, graph::TensorId logits);
// Ends a language model: the loss of all rows, or the logits of each sequence's last token.
void LanguageHead(ModelContext& context, graph::TensorId x, graph::TensorId weight,
                  graph::TensorId bias, graph::TensorId lengths);
// Ends a decoder as its task and head ask: "score" of the last token, or `words` (tied)
// or an "lm_head" of their size.
Status DecoderHead(ModelContext& context, graph::TensorId x, graph::TensorId words, bool tied,
                   graph::TensorId lengths);
// Ends with the last hidden state.
void HiddenHead(ModelContext& context, graph::TensorId x);

// Fails on a sequence longer than the model's positions.
Status CheckPositions(int64_t sequence, int64_t positions);

Error UnsupportedNativeTask(const ModelContext& context);

}  // namespace headroom::engine
