// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/albert/modeling_albert.py.
#include "predict/models/architectures.h"
#include "predict/models/bert_layers.h"

namespace headroom::predict {
namespace {

Tensor NormedSum(const LayerNorm& norm, const Tensor& a, const Tensor& b) {
  Tensor sum;
  {
    const Scoped kind(a.runtime().kind, Kind::kResidual);
    sum = Add(a, b);
  }
  return norm(sum);
}

// AlbertAttention, which ends in its own output projection and norm.
class Attention {
 public:
  Attention(const Scope& scope, const ModelArguments& arguments)
      : id_(scope.id()),
        attention_(scope, {.heads = arguments.config.Int("num_attention_heads"),
                           .dropout = arguments.config.Float("attention_probs_dropout_prob"),
                           .attn = arguments.attn}),
        dense_(scope / "dense"),
        norm_(scope / "LayerNorm"),
        dropout_(arguments.config.Float("hidden_dropout_prob")) {}

  AttentionOutput operator()(const Tensor& hidden, const Tensor& mask) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    EncoderSelfAttention::Frame frame = attention_.Run(hidden, mask);
    Tensor& states = frame.output.states;
    states = dense_(states);
    states = Dropout(states, dropout_);
    states = NormedSum(norm_, hidden, states);
    return frame.output;
  }

 private:
  ModuleId id_;
  EncoderSelfAttention attention_;
  Linear dense_;
  LayerNorm norm_;
  double dropout_;
};

class AlbertLayer {
 public:
  AlbertLayer(const Scope& scope, const ModelArguments& arguments, Activation activation)
      : id_(scope.id()),
        full_norm_(scope / "full_layer_layer_norm"),
        attention_(scope / "attention", arguments),
        ffn_(scope / "ffn"),
        ffn_output_(scope / "ffn_output"),
        activation_(activation) {}

  Tensor operator()(const Tensor& hidden, const Tensor& mask) const {
    const InModule in(hidden.runtime(), id_);
    const AttentionOutput attention = attention_(hidden, mask);
    Tensor ffn_output;
    {
      const Scoped kind(hidden.runtime().kind, Kind::kMlp);
      ffn_output = FeedForward(attention.states);
    }
    return NormedSum(full_norm_, ffn_output, attention.states);
  }

 private:
  Tensor FeedForward(const Tensor& attention) const {
    Tensor x = ffn_(attention);
    x = activation_(x);
    x = ffn_output_(x);
    return x;
  }

  ModuleId id_;
  LayerNorm full_norm_;
  Attention attention_;
  Linear ffn_;
  Linear ffn_output_;
  Activation activation_;
};

class Albert final : public Model {
 public:
  Albert(const ModelArguments& arguments, Activation activation)
      : attn_(arguments.attn),
        embeddings_(Scope(arguments.weights) / "albert" / "embeddings", arguments.config),
        mapping_(Scope(arguments.weights) / "albert" / "encoder" / "embedding_hidden_mapping_in"),
        classifier_dropout_(arguments.config.Float("classifier_dropout_prob")) {
    const Scope root(arguments.weights);
    BuildLayers(root / "albert" / "encoder" / "albert_layer_groups", arguments, activation);
    if (arguments.recipe.task == Task::kMaskedLm) {
      const Scope head = root / "predictions";
      lm_head_.emplace(head / "dense", head / "LayerNorm", head / "decoder",
                       embeddings_.word_weight(), head.Get("bias"), activation);
      return;
    }
    classifier_.emplace(root / "classifier");
    if (arguments.recipe.task == Task::kSequenceClassification) {
      pooler_.emplace(root / "albert" / "pooler");
    }
  }

  ModelOutput Forward(const Batch& batch) override {
    const Encoded outputs = RunEncoder(batch);
    if (lm_head_) return Classified((*lm_head_)(outputs.sequence), batch.labels);
    const Tensor dropped =
        Dropout(pooler_ ? outputs.pooled : outputs.sequence, classifier_dropout_);
    return Classified((*classifier_)(dropped), batch.labels);
  }

 private:
  struct Encoded {
    Tensor sequence;
    Tensor pooled;
  };

  // Layers are few and used several times: num_hidden_layers passes over num_hidden_groups groups.
  void BuildLayers(const Scope& groups, const ModelArguments& arguments, Activation activation) {
    const ModelConfig& config = arguments.config;
    const int64_t group_count = config.Int("num_hidden_groups");
    for (int64_t group = 0; group < group_count; ++group) {
      for (int64_t i = 0; i < config.Int("inner_group_num"); ++i) {
        layers_.emplace_back((groups[group] / "albert_layers")[i], arguments, activation);
      }
    }
    const int64_t passes = config.Int("num_hidden_layers");
    for (int64_t pass = 0; pass < passes; ++pass)
      group_of_pass_.push_back(pass * group_count / passes);
    group_size_ = config.Int("inner_group_num");
  }

  Encoded RunEncoder(const Batch& batch) const {
    const Tensor embedding_output = embeddings_(batch.input_ids);
    const Tensor mask = CreateBidirectionalMask(attn_, embedding_output, batch.attention_mask);
    const Tensor hidden = Transform(embedding_output, mask);
    Tensor pooled;
    if (pooler_) {
      pooled = (*pooler_)(Select(hidden, 1, 0));
      pooled = Tanh(pooled);
    }
    return {hidden, pooled};
  }

  Tensor Transform(const Tensor& embedding_output, const Tensor& mask) const {
    Tensor hidden = mapping_(embedding_output);
    for (const int64_t group : group_of_pass_) {
      Tensor in_group = hidden;  // AlbertLayerGroup's own name for it
      for (int64_t i = 0; i < group_size_; ++i) {
        in_group = layers_[static_cast<size_t>(group * group_size_ + i)](in_group, mask);
      }
      hidden = in_group;
    }
    return hidden;
  }

  AttnImplementation attn_;
  BertEmbeddings embeddings_;
  Linear mapping_;
  std::vector<AlbertLayer> layers_;  // group by group
  std::vector<int64_t> group_of_pass_;
  int64_t group_size_ = 1;
  double classifier_dropout_;
  std::optional<Linear> pooler_;
  std::optional<MaskedLmHead> lm_head_;
  std::optional<Linear> classifier_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  if (arguments.checkpoint != CheckpointKind::kNone) {
    return Error::BadInput(
        "model_type \"albert\" does not support gradient checkpointing: "
        "leave gradient_checkpointing out");
  }
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(arguments.config.String("hidden_act")));
  return std::unique_ptr<Model>(std::make_unique<Albert>(arguments, activation));
}

}  // namespace

extern const Architecture kAlbert = {
    .model_type = "albert",
    .accepts_loss_kwargs = [](Task) { return true; },
    .loss_shifts_labels = [](Task) { return false; },
    .make = &Make,
};

}  // namespace headroom::predict
