// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/bert/modeling_bert.py, models/roberta/modeling_roberta.py.
#include "predict/models/bert_layers.h"

#include "predict/losses.h"

namespace headroom::predict {
namespace {

EncoderSelfAttention::Options BertAttentionOptions(const ModelArguments& arguments) {
  return {.heads = arguments.config.Int("num_attention_heads"),
          .dropout = arguments.config.Float("attention_probs_dropout_prob"),
          .attn = arguments.attn};
}

Linear Decoder(const Scope& scope, const Tensor& word_weight, const Tensor& tied_bias) {
  const Tensor untied = scope.Find("weight");
  const Tensor own_bias = scope.Find("bias");
  return Linear(scope, untied.defined() ? untied : word_weight,
                own_bias.defined() ? own_bias : tied_bias);
}

}  // namespace

BertEmbeddings::BertEmbeddings(const Scope& scope, const ModelConfig& config)
    : id_(scope.id()),
      word_(scope / "word_embeddings"),
      position_(scope / "position_embeddings"),
      token_type_(scope / "token_type_embeddings"),
      norm_(scope / "LayerNorm"),
      dropout_(config.Float("hidden_dropout_prob")),
      position_ids_(scope.Get("position_ids")),
      token_type_ids_(scope.Get("token_type_ids")) {}

Tensor BertEmbeddings::operator()(const Tensor& input_ids) const {
  Runtime& runtime = input_ids.runtime();
  const InModule in(runtime, id_);
  const Scoped kind(runtime.kind, Kind::kEmbedding);
  const int64_t batch = input_ids.size(0);
  const int64_t sequence = input_ids.size(1);
  const bool whole = sequence == position_ids_.size(1);
  const Tensor position_ids = whole ? position_ids_ : Slice(position_ids_, 1, 0, sequence);
  // gather(token_type_ids buffer, 1, position_ids), seen by every row of the batch
  const Tensor gathered = Empty(runtime, {1, sequence}, DType::kInt64);
  const Tensor token_type_ids = Expand(gathered, {batch, sequence});

  const Tensor words = word_(input_ids);
  const Tensor token_types = token_type_(token_type_ids);
  Tensor embeddings = Add(words, token_types);
  const Tensor positions = position_(position_ids);
  embeddings = Add(embeddings, positions);
  embeddings = norm_(embeddings);
  embeddings = Dropout(embeddings, dropout_);
  return embeddings;
}

EncoderSelfAttention::EncoderSelfAttention(const Scope& scope, const Options& options)
    : id_(scope.id()),
      query_(scope / options.projections[0]),
      key_(scope / options.projections[1]),
      value_(scope / options.projections[2]),
      heads_(options.heads),
      eager_(options.attn == AttnImplementation::kEager),
      dropout_(options.dropout) {}

EncoderSelfAttention::Frame EncoderSelfAttention::Run(const Tensor& hidden,
                                                      const Tensor& mask) const {
  const InModule in(hidden.runtime(), id_);
  const Scoped kind(hidden.runtime().kind, Kind::kAttention);
  Frame frame;
  frame.q = Heads(query_(hidden));
  frame.k = Heads(key_(hidden));
  frame.v = Heads(value_(hidden));
  AttentionOutput& output = frame.output;
  if (eager_) {
    output = AutocastAttentionForward(frame.q, frame.k, frame.v, mask, dropout_);
  } else {
    output.states = SdpaAttentionForward(frame.q, frame.k, frame.v, mask, {.dropout = dropout_});
  }
  output.states = Contiguous(Reshape(output.states, {hidden.size(0), hidden.size(1), -1}));
  return frame;
}

Tensor EncoderSelfAttention::Heads(const Tensor& x) const {
  return Transpose(View(x, {x.size(0), x.size(1), heads_, -1}), 1, 2);
}

BertOutput::BertOutput(const Scope& scope, const ModelConfig& config)
    : id_(scope.id()),
      dense_(scope / "dense"),
      norm_(scope / "LayerNorm"),
      dropout_(config.Float("hidden_dropout_prob")) {}

Tensor BertOutput::operator()(const Tensor& states, const Tensor& input) const {
  const InModule in(states.runtime(), id_);
  Tensor hidden = dense_(states);
  hidden = Dropout(hidden, dropout_);
  Tensor sum;
  {
    const Scoped kind(states.runtime().kind, Kind::kResidual);
    sum = Add(hidden, input);
  }
  // LayerNorm's argument lives through its call; the name is bound anew only afterwards.
  const Tensor normed = norm_(sum);
  return normed;
}

BertLayer::BertLayer(const Scope& scope, const ModelArguments& arguments, Activation activation)
    : id_(scope.id()),
      self_(scope / "attention" / "self", BertAttentionOptions(arguments)),
      self_output_(scope / "attention" / "output", arguments.config),
      intermediate_id_((scope / "intermediate").id()),
      intermediate_(scope / "intermediate" / "dense"),
      activation_(activation),
      output_(scope / "output", arguments.config) {}

Tensor BertLayer::operator()(const Tensor& hidden, const Tensor& mask) const {
  const InModule in(hidden.runtime(), id_);
  const AttentionOutput attention = Attention(hidden, mask);
  const Scoped kind(hidden.runtime().kind, Kind::kMlp);
  const Tensor intermediate = Intermediate(attention.states);
  return output_(intermediate, attention.states);
}

AttentionOutput BertLayer::Attention(const Tensor& hidden, const Tensor& mask) const {
  const Scoped kind(hidden.runtime().kind, Kind::kAttention);
  const AttentionOutput output = self_(hidden, mask);
  return {self_output_(output.states, hidden), output.weights};
}

Tensor BertLayer::Intermediate(const Tensor& attention) const {
  const InModule in(attention.runtime(), intermediate_id_);
  Tensor hidden = intermediate_(attention);
  hidden = activation_(hidden);
  return hidden;
}

BertLayers::BertLayers(const Scope& scope, const ModelArguments& arguments, Activation activation)
    : checkpoint_(arguments.checkpoint) {
  for (int64_t i = 0; i < arguments.config.Int("num_hidden_layers"); ++i) {
    layers_.emplace_back((scope / "layer")[i], arguments, activation);
  }
}

Tensor BertLayers::operator()(const Tensor& embedding_output, const Tensor& mask) const {
  Tensor hidden = embedding_output;
  for (const BertLayer& layer : layers_) {
    hidden = Checkpoint(
        checkpoint_, [&layer, mask](const Tensor& x) { return layer(x, mask); }, hidden);
  }
  return hidden;
}

MaskedLmHead::MaskedLmHead(const Scope& dense, const Scope& norm, const Scope& decoder,
                           const Tensor& word_weight, const Tensor& tied_bias,
                           Activation activation)
    : dense_(dense),
      norm_(norm),
      decoder_(Decoder(decoder, word_weight, tied_bias)),
      activation_(activation) {}

Tensor MaskedLmHead::operator()(const Tensor& sequence) const {
  const Scoped kind(sequence.runtime().kind, Kind::kLogitsLoss);
  Tensor hidden = dense_(sequence);
  hidden = activation_(hidden);
  hidden = norm_(hidden);
  hidden = decoder_(hidden);
  return hidden;
}

FirstTokenHead::FirstTokenHead(const Scope& scope, double dropout, Activation activation)
    : id_(scope.id()),
      dense_(scope / "dense"),
      out_proj_(scope / "out_proj"),
      dropout_(dropout),
      activation_(activation) {}

Tensor FirstTokenHead::operator()(const Tensor& sequence) const {
  const InModule in(sequence.runtime(), id_);
  Tensor x = Select(sequence, 1, 0);
  x = Dropout(x, dropout_);
  x = dense_(x);
  x = activation_(x);
  x = Dropout(x, dropout_);
  x = out_proj_(x);
  return x;
}

Tensor ClassificationLoss(const Tensor& logits, const Tensor& labels) {
  return ClassifierLoss(logits, labels);
}

ModelOutput Classified(const Tensor& logits, const Tensor& labels) {
  return {ClassificationLoss(logits, labels), logits, {}};
}

double ClassifierDropout(const ModelConfig& config) {
  return config.MaybeFloat("classifier_dropout").value_or(config.Float("hidden_dropout_prob"));
}

}  // namespace headroom::predict
