// SPDX-License-Identifier: Apache-2.0
//
// BERT and RoBERTa, as transformers 5.17 runs them (models/bert/modeling_bert.py,
// models/roberta/modeling_roberta.py): norms behind each residual.
#include "engine/models/families.h"
#include "model/parameter_builders.h"

namespace headroom::engine {
namespace {

using graph::kNoTensor;
using graph::TensorId;

class BertBuilder {
 public:
  explicit BertBuilder(ModelContext& context)
      : context_(context),
        config_(context.config),
        b_(context.builder),
        roberta_(config_.model_type() == "roberta"),
        prefix_(roberta_ ? "roberta." : "bert."),
        hidden_(config_.Int("hidden_size")),
        eps_(static_cast<float>(config_.Float("layer_norm_eps"))) {}

  Status Run() {
    HEADROOM_RETURN_IF_ERROR(Check());
    context_.model.base_prefix = prefix_;
    lengths_ = context_.Lengths("lengths");
    TensorId x = Embeddings();
    for (int64_t layer = 0; layer < config_.Int("num_hidden_layers"); ++layer) {
      x = Layer(x, static_cast<int>(layer));
    }
    b_.Enter("");
    if (context_.options.head == Head::kHidden) {
      HiddenHead(context_, x);
      return {};
    }
    switch (context_.options.task) {
      case Task::kSequenceClassification:
        roberta_ ? RobertaClassifier(x) : Classifier(x);
        return {};
      case Task::kMaskedLm:
        MaskedLm(x);
        return {};
      default:
        return UnsupportedNativeTask(context_);
    }
  }

 private:
  int64_t PositionOffset() const { return roberta_ ? config_.Int("pad_token_id") + 1 : 0; }

  Status Check() {
    HEADROOM_RETURN_IF_ERROR(CheckDivisible(config_, "hidden_size", "num_attention_heads"));
    HEADROOM_RETURN_IF_ERROR(CheckPositions(
        context_.max_sequence(), config_.Int("max_position_embeddings") - PositionOffset()));
    HEADROOM_ASSIGN_OR_RETURN(activation_, ParseActivation(config_.String("hidden_act")));
    return {};
  }

  TensorId Embeddings() {
    const std::string at = prefix_ + "embeddings";
    b_.Enter(at);
    words_ = b_.EmbeddingTable(at + ".word_embeddings.weight",
                               Shape{config_.Int("vocab_size"), hidden_});
    const TensorId positions = b_.EmbeddingTable(
        at + ".position_embeddings.weight", Shape{config_.Int("max_position_embeddings"), hidden_});
    const TensorId types = b_.EmbeddingTable(at + ".token_type_embeddings.weight",
                                             Shape{config_.Int("type_vocab_size"), hidden_});
    const Affine norm = NormWeights(b_, at + ".LayerNorm", hidden_);
    const TensorId type_ids =
        config_.Int("type_vocab_size") > 1 ? context_.Ids("token_type_ids") : kNoTensor;
    const TensorId sum =
        b_.Embedding({.ids = context_.Ids("input_ids"),
                      .table = words_,
                      .positions = positions,
                      .types = types,
                      .type_ids = type_ids,
                      .position_offset = static_cast<int>(PositionOffset()),
                      .padding_row = context_.PaddingRow(config_.Int("vocab_size"))});
    const TensorId y = b_.Norm({.x = sum, .gamma = norm.weight, .beta = norm.bias, .eps = eps_}).y;
    return b_.Dropout(y, context_.Rate("hidden_dropout_prob"));
  }

  TensorId Layer(TensorId x, int layer) {
    const std::string at = prefix_ + "encoder.layer." + std::to_string(layer);
    b_.Enter(at + ".attention.self", layer);
    const TensorId attended = Attention(x, at);
    b_.Enter(at + ".attention.output", layer);
    const TensorId middle = Output(attended, x, at + ".attention.output", hidden_);
    const int64_t inner = config_.Int("intermediate_size");
    b_.Enter(at + ".intermediate", layer);
    const Affine up = LinearWeights(b_, at + ".intermediate.dense", hidden_, inner);
    const TensorId active = b_.Activation(ApplyLinear(b_, middle, up, Kind::kMlp), activation_);
    b_.Enter(at + ".output", layer);
    return Output(active, middle, at + ".output", inner);
  }

  TensorId Attention(TensorId x, const std::string& at) {
    const std::string self = at + ".attention.self.";
    const Affine qkv = PackedLinear(
        b_, self + "qkv",
        {{self + "query", hidden_}, {self + "key", hidden_}, {self + "value", hidden_}}, hidden_,
        true);
    const TensorId packed = ApplyLinear(b_, x, qkv, Kind::kAttention);
    const int heads = static_cast<int>(config_.Int("num_attention_heads"));
    return b_.Attention({.q = b_.Columns(packed, 0, hidden_),
                         .k = b_.Columns(packed, hidden_, hidden_),
                         .v = b_.Columns(packed, 2 * hidden_, hidden_),
                         .key_lengths = lengths_,
                         .heads = heads,
                         .kv_heads = heads,
                         .head_dim = static_cast<int>(hidden_ / heads),
                         .dropout = context_.Rate("attention_probs_dropout_prob")});
  }

  // LayerNorm(residual + dropout(dense(x)))
  TensorId Output(TensorId x, TensorId residual, const std::string& at, int64_t in) {
    const Affine dense = LinearWeights(b_, at + ".dense", in, hidden_);
    const Affine norm = NormWeights(b_, at + ".LayerNorm", hidden_);
    return b_
        .Norm({.x = ApplyLinear(b_, x, dense, Kind::kMlp),
               .residual = residual,
               .gamma = norm.weight,
               .beta = norm.bias,
               .eps = eps_,
               .dropout = context_.Rate("hidden_dropout_prob")})
        .y;
  }

  float ClassifierDropout() const {
    const bool own = config_.Has("classifier_dropout");
    return context_.Rate(own ? "classifier_dropout" : "hidden_dropout_prob");
  }

  void Classifier(TensorId x) {
    b_.Enter("bert.pooler");
    const Affine pooler = LinearWeights(b_, "bert.pooler.dense", hidden_, hidden_);
    const TensorId first = b_.SelectRows(x, kNoTensor, 0);
    const TensorId pooled =
        b_.Activation(ApplyLinear(b_, first, pooler, Kind::kOther), graph::ActivationKind::kTanh);
    b_.Enter("classifier");
    const Affine classifier = LinearWeights(b_, "classifier", hidden_, config_.Int("num_labels"));
    const TensorId dropped = b_.Dropout(pooled, ClassifierDropout());
    ClassifierHead(context_, ApplyLinear(b_, dropped, classifier, Kind::kLogitsLoss));
  }

  void RobertaClassifier(TensorId x) {
    b_.Enter("classifier");
    const Affine dense = LinearWeights(b_, "classifier.dense", hidden_, hidden_);
    const Affine out = LinearWeights(b_, "classifier.out_proj", hidden_, config_.Int("num_labels"));
    const TensorId first = b_.Dropout(b_.SelectRows(x, kNoTensor, 0), ClassifierDropout());
    const TensorId active =
        b_.Activation(ApplyLinear(b_, first, dense, Kind::kOther), graph::ActivationKind::kTanh);
    ClassifierHead(
        context_, ApplyLinear(b_, b_.Dropout(active, ClassifierDropout()), out, Kind::kLogitsLoss));
  }

  void MaskedLm(TensorId x) {
    const std::string head = roberta_ ? "lm_head" : "cls.predictions";
    const std::string transform = roberta_ ? "lm_head" : "cls.predictions.transform";
    b_.Enter(head);
    const int64_t vocabulary = config_.Int("vocab_size");
    const Affine dense = LinearWeights(b_, transform + ".dense", hidden_, hidden_);
    const Affine norm =
        NormWeights(b_, transform + (roberta_ ? ".layer_norm" : ".LayerNorm"), hidden_);
    const TensorId bias = b_.Weight(head + ".bias", Shape{vocabulary});
    const graph::ActivationKind activation = roberta_ ? graph::ActivationKind::kGelu : activation_;
    const TensorId active = b_.Activation(ApplyLinear(b_, x, dense, Kind::kOther), activation);
    const TensorId y =
        b_.Norm({.x = active, .gamma = norm.weight, .beta = norm.bias, .eps = eps_}).y;
    TensorId decoder = words_;
    if (config_.MaybeBool("tie_word_embeddings").value_or(true)) {
      const std::string words = context_.model.graph.tensor(words_).name;
      context_.model.tied = {{head + ".decoder.weight", words},
                             {head + ".decoder.bias", head + ".bias"}};
    } else {
      decoder = b_.Weight(head + ".decoder.weight", Shape{vocabulary, hidden_});
    }
    LanguageHead(context_, y, decoder, bias, lengths_);
  }

  ModelContext& context_;
  const ModelConfig& config_;
  graph::GraphBuilder& b_;
  const bool roberta_;
  const std::string prefix_;
  const int64_t hidden_;
  const float eps_;
  graph::ActivationKind activation_ = graph::ActivationKind::kGelu;
  TensorId words_ = kNoTensor;
  TensorId lengths_ = kNoTensor;
};

}  // namespace

Status BuildBert(ModelContext& context) { return BertBuilder(context).Run(); }

}  // namespace headroom::engine
