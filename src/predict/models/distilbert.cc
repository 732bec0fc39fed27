// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/distilbert/modeling_distilbert.py.
#include "predict/models/architectures.h"
#include "predict/models/bert_layers.h"

namespace headroom::predict {
namespace {

class Embeddings {
 public:
  Embeddings(const Scope& scope, const ModelConfig& config)
      : id_(scope.id()),
        word_(scope / "word_embeddings"),
        position_(scope / "position_embeddings"),
        norm_(scope / "LayerNorm"),
        dropout_(config.Float("dropout")),
        position_ids_(scope.Get("position_ids")) {}

  Tensor operator()(const Tensor& input_ids) const {
    Runtime& runtime = input_ids.runtime();
    const InModule in(runtime, id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const Tensor words = word_(input_ids);
    const Tensor positions = position_(Slice(position_ids_, 1, 0, input_ids.size(1)));
    Tensor embeddings = Add(words, positions);
    embeddings = norm_(embeddings);
    embeddings = Dropout(embeddings, dropout_);
    return embeddings;
  }
  const Tensor& word_weight() const { return word_.weight(); }

 private:
  ModuleId id_;
  Embedding word_;
  Embedding position_;
  LayerNorm norm_;
  double dropout_;
  Tensor position_ids_;
};

// DistilBertSelfAttention, which ends in its output projection.
class SelfAttention {
 public:
  SelfAttention(const Scope& scope, const ModelArguments& arguments)
      : id_(scope.id()),
        attention_(scope, {.projections = {"q_lin", "k_lin", "v_lin"},
                           .heads = arguments.config.Int("n_heads"),
                           .dropout = arguments.config.Float("attention_dropout"),
                           .attn = arguments.attn}),
        out_(scope / "out_lin") {}

  AttentionOutput operator()(const Tensor& hidden, const Tensor& mask) const {
    const InModule in(hidden.runtime(), id_);
    EncoderSelfAttention::Frame frame = attention_.Run(hidden, mask);
    frame.output.states = out_(frame.output.states);
    return frame.output;
  }

 private:
  ModuleId id_;
  EncoderSelfAttention attention_;
  Linear out_;
};

class FeedForward {
 public:
  FeedForward(const Scope& scope, const ModelConfig& config, Activation activation)
      : id_(scope.id()),
        lin1_(scope / "lin1"),
        lin2_(scope / "lin2"),
        activation_(activation),
        dropout_(config.Float("dropout")) {}

  Tensor operator()(const Tensor& input) const {
    const InModule in(input.runtime(), id_);
    Tensor x = lin1_(input);
    x = activation_(x);
    x = lin2_(x);
    x = Dropout(x, dropout_);
    return x;
  }

 private:
  ModuleId id_;
  Linear lin1_;
  Linear lin2_;
  Activation activation_;
  double dropout_;
};

class TransformerBlock {
 public:
  TransformerBlock(const Scope& scope, const ModelArguments& arguments, Activation activation)
      : id_(scope.id()),
        attention_(scope / "attention", arguments),
        attention_norm_(scope / "sa_layer_norm"),
        ffn_(scope / "ffn", arguments.config, activation),
        output_norm_(scope / "output_layer_norm") {}

  Tensor operator()(const Tensor& hidden, const Tensor& mask) const {
    Runtime& runtime = hidden.runtime();
    const InModule in(runtime, id_);
    AttentionOutput attention;
    {
      const Scoped kind(runtime.kind, Kind::kAttention);
      attention = attention_(hidden, mask);
    }
    attention.states = Normed(attention_norm_, attention.states, hidden);
    Tensor ffn_output;
    {
      const Scoped kind(runtime.kind, Kind::kMlp);
      ffn_output = ffn_(attention.states);
    }
    ffn_output = Normed(output_norm_, ffn_output, attention.states);
    return ffn_output;
  }

 private:
  static Tensor Normed(const LayerNorm& norm, const Tensor& states, const Tensor& residual) {
    Tensor sum;
    {
      const Scoped kind(states.runtime().kind, Kind::kResidual);
      sum = Add(states, residual);
    }
    return norm(sum);
  }

  ModuleId id_;
  SelfAttention attention_;
  LayerNorm attention_norm_;
  FeedForward ffn_;
  LayerNorm output_norm_;
};

class DistilBert final : public Model {
 public:
  DistilBert(const ModelArguments& arguments, Activation activation)
      : attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        embeddings_(Scope(arguments.weights) / "distilbert" / "embeddings", arguments.config) {
    const Scope root(arguments.weights);
    const ModelConfig& config = arguments.config;
    for (int64_t i = 0; i < config.Int("n_layers"); ++i) {
      layers_.emplace_back((root / "distilbert" / "transformer" / "layer")[i], arguments,
                           activation);
    }
    if (arguments.recipe.task == Task::kMaskedLm) {
      lm_head_.emplace(root / "vocab_transform", root / "vocab_layer_norm",
                       root / "vocab_projector", embeddings_.word_weight(), Tensor(), activation);
      return;
    }
    classifier_.emplace(root / "classifier");
    dropout_ = config.Float("dropout");
    if (arguments.recipe.task == Task::kSequenceClassification) {
      pre_classifier_.emplace(root / "pre_classifier");
      dropout_ = config.Float("seq_classif_dropout");
    }
  }

  ModelOutput Forward(const Batch& batch) override {
    const Tensor sequence = Encode(batch);
    if (lm_head_) return Classified((*lm_head_)(sequence), batch.labels);
    Tensor states = sequence;
    if (pre_classifier_) {
      states = Select(sequence, 1, 0);
      states = (*pre_classifier_)(states);
      states = Relu(states);
    }
    states = Dropout(states, dropout_);
    return Classified((*classifier_)(states), batch.labels);
  }

 private:
  // DistilBertModel.forward; its local embeddings live to the end.
  Tensor Encode(const Batch& batch) const {
    const Tensor embeddings = embeddings_(batch.input_ids);
    const Tensor mask = CreateBidirectionalMask(attn_, embeddings, batch.attention_mask);
    Tensor hidden = embeddings;
    for (const TransformerBlock& layer : layers_) {
      hidden = Checkpoint(
          checkpoint_, [&layer, mask](const Tensor& x) { return layer(x, mask); }, hidden);
    }
    return hidden;
  }

  AttnImplementation attn_;
  CheckpointKind checkpoint_;
  Embeddings embeddings_;
  std::vector<TransformerBlock> layers_;
  double dropout_ = 0;
  std::optional<MaskedLmHead> lm_head_;
  std::optional<Linear> pre_classifier_;
  std::optional<Linear> classifier_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(arguments.config.String("activation")));
  return std::unique_ptr<Model>(std::make_unique<DistilBert>(arguments, activation));
}

}  // namespace

extern const Architecture kDistilBert = {
    .model_type = "distilbert",
    .accepts_loss_kwargs = [](Task) { return true; },
    .loss_shifts_labels = [](Task) { return false; },
    .make = &Make,
};

}  // namespace headroom::predict
