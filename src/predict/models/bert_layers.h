// SPDX-License-Identifier: Apache-2.0
//
// What BERT shares with the encoders that descend from it: embeddings, self-attention, layers,
// heads.
//
// Each is built at its place in the module tree and finds its parameters there, so that one class
// serves models which differ in names or widths only:
//
//   BertLayers layers(root / "roberta" / "encoder", arguments, activation);
//   Tensor hidden = layers(embedding_output, mask);
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "predict/model.h"
#include "predict/models/attention.h"

namespace headroom::predict {

// BertEmbeddings: words, token types and positions, summed, normed, dropped.
class BertEmbeddings {
 public:
  BertEmbeddings(const Scope& scope, const ModelConfig& config);

  Tensor operator()(const Tensor& input_ids) const;
  const Tensor& word_weight() const { return word_.weight(); }

 private:
  ModuleId id_;
  Embedding word_;
  Embedding position_;
  Embedding token_type_;
  LayerNorm norm_;
  double dropout_;
  Tensor position_ids_;
  Tensor token_type_ids_;
};

// Query, key and value projections and attention over them, before the output projection.
class EncoderSelfAttention {
 public:
  struct Options {
    std::array<std::string_view, 3> projections = {"query", "key", "value"};
    int64_t heads = 1;
    double dropout = 0;
    AttnImplementation attn = AttnImplementation::kSdpa;
  };
  EncoderSelfAttention(const Scope& scope, const Options& options);

  // The locals of its forward, which models that go on inside it keep alive.
  struct Frame {
    Tensor q;
    Tensor k;
    Tensor v;
    AttentionOutput output;  // states [batch, sequence, width]
  };
  Frame Run(const Tensor& hidden, const Tensor& mask) const;

  AttentionOutput operator()(const Tensor& hidden, const Tensor& mask) const {
    return Run(hidden, mask).output;
  }

 private:
  Tensor Heads(const Tensor& x) const;

  ModuleId id_;
  Linear query_;
  Linear key_;
  Linear value_;
  int64_t heads_;
  bool eager_;
  double dropout_;
};

// BertSelfOutput and BertOutput: dense, dropout, residual, norm.
class BertOutput {
 public:
  BertOutput(const Scope& scope, const ModelConfig& config);

  Tensor operator()(const Tensor& states, const Tensor& input) const;

 private:
  ModuleId id_;
  Linear dense_;
  LayerNorm norm_;
  double dropout_;
};

class BertLayer {
 public:
  BertLayer(const Scope& scope, const ModelArguments& arguments, Activation activation);

  Tensor operator()(const Tensor& hidden, const Tensor& mask) const;

 private:
  AttentionOutput Attention(const Tensor& hidden, const Tensor& mask) const;
  Tensor Intermediate(const Tensor& attention) const;

  ModuleId id_;
  EncoderSelfAttention self_;
  BertOutput self_output_;
  ModuleId intermediate_id_;
  Linear intermediate_;
  Activation activation_;
  BertOutput output_;
};

// BertEncoder: the layers of `scope` one after the other, each under the run's checkpointing.
class BertLayers {
 public:
  BertLayers(const Scope& scope, const ModelArguments& arguments, Activation activation);

  Tensor operator()(const Tensor& embedding_output, const Tensor& mask) const;

 private:
  CheckpointKind checkpoint_;
  std::vector<BertLayer> layers_;
};

// The head of masked language models: dense, activation, norm, decoder.
class MaskedLmHead {
 public:
  // `decoder` keeps a weight of its own only where it is not tied to `word_weight`; its bias is
  // then its own too, else `tied_bias` (undefined: its own in any case).
  MaskedLmHead(const Scope& dense, const Scope& norm, const Scope& decoder,
               const Tensor& word_weight, const Tensor& tied_bias, Activation activation);

  Tensor operator()(const Tensor& sequence) const;

 private:
  Linear dense_;
  LayerNorm norm_;
  Linear decoder_;
  Activation activation_;
};

// RobertaClassificationHead: the first token's state, dropout, dense, activation, dropout,
// out_proj.
class FirstTokenHead {
 public:
  FirstTokenHead(const Scope& scope, double dropout, Activation activation);

  Tensor operator()(const Tensor& sequence) const;

 private:
  ModuleId id_;
  Linear dense_;
  Linear out_proj_;
  double dropout_;
  Activation activation_;
};

// CrossEntropyLoss over logits.view(-1, classes) and labels.view(-1).
Tensor ClassificationLoss(const Tensor& logits, const Tensor& labels);
// The same output for heads that end in such a loss.
ModelOutput Classified(const Tensor& logits, const Tensor& labels);

// config.classifier_dropout, or hidden_dropout_prob where it is null.
double ClassifierDropout(const ModelConfig& config);

}  // namespace headroom::predict
