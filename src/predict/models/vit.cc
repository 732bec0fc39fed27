// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/vit/modeling_vit.py and models/deit/modeling_deit.py, which has a
// second token in front of the patches.
#include "predict/models/architectures.h"
#include "predict/models/attention.h"

namespace headroom::predict {
namespace {

class VitEmbeddings {
 public:
  VitEmbeddings(const Scope& scope, const ModelConfig& config)
      : id_(scope.id()),
        projection_id_((scope / "patch_embeddings" / "projection").id()),
        cls_token_(scope.Get("cls_token")),
        distillation_token_(scope.Find("distillation_token")),
        position_embeddings_(scope.Get("position_embeddings")),
        projection_weight_((scope / "patch_embeddings" / "projection").Get("weight")),
        projection_bias_((scope / "patch_embeddings" / "projection").Get("bias")),
        patch_size_(config.Int("patch_size")),
        dropout_(config.Float("hidden_dropout_prob")) {}

  Tensor operator()(const Tensor& given_pixel_values) const {
    Runtime& runtime = given_pixel_values.runtime();
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const Tensor pixel_values = To(given_pixel_values, projection_weight_.dtype());
    const InModule in(runtime, id_);
    Tensor embeddings = Patches(pixel_values);
    const int64_t batch = embeddings.size(0);
    const Tensor cls_tokens = Expand(cls_token_, {batch, -1, -1});
    if (distillation_token_.defined()) {
      const Tensor distillation_tokens = Expand(distillation_token_, {batch, -1, -1});
      const Tensor parts[] = {cls_tokens, distillation_tokens, embeddings};
      embeddings = Cat(parts, 1);
    } else {
      const Tensor parts[] = {cls_tokens, embeddings};
      embeddings = Cat(parts, 1);
    }
    embeddings = Add(embeddings, position_embeddings_);
    embeddings = Dropout(embeddings, dropout_);
    return embeddings;
  }

 private:
  // projection(pixel_values).flatten(2).transpose(1, 2)
  Tensor Patches(const Tensor& pixel_values) const {
    const InModule in(pixel_values.runtime(), projection_id_);
    const Tensor map =
        Convolution(pixel_values, projection_weight_, projection_bias_, patch_size_, 0);
    return Transpose(View(map, {map.size(0), map.size(1), -1}), 1, 2);
  }

  ModuleId id_;
  ModuleId projection_id_;
  Tensor cls_token_;
  Tensor distillation_token_;
  Tensor position_embeddings_;
  Tensor projection_weight_;
  Tensor projection_bias_;
  int64_t patch_size_;
  double dropout_;
};

class VitAttention {
 public:
  VitAttention(const Scope& scope, const ModelArguments& arguments)
      : id_(scope.id()),
        q_proj_(scope / "q_proj"),
        k_proj_(scope / "k_proj"),
        v_proj_(scope / "v_proj"),
        o_proj_(scope / "o_proj"),
        heads_(arguments.config.Int("num_attention_heads")),
        eager_(arguments.attn == AttnImplementation::kEager),
        options_{.dropout = arguments.config.Float("attention_probs_dropout_prob")} {}

  AttentionOutput operator()(const Tensor& hidden, const Tensor& mask) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    const Tensor q = Heads(q_proj_(hidden));
    const Tensor k = Heads(k_proj_(hidden));
    const Tensor v = Heads(v_proj_(hidden));
    AttentionOutput output;
    if (eager_) {
      output = EagerAttentionForward(q, k, v, mask, options_);
    } else {
      output.states = SdpaAttentionForward(q, k, v, mask, options_);
    }
    output.states = Contiguous(Reshape(output.states, {hidden.size(0), hidden.size(1), -1}));
    output.states = o_proj_(output.states);
    return output;
  }

 private:
  Tensor Heads(const Tensor& x) const {
    return Transpose(View(x, {x.size(0), x.size(1), heads_, -1}), 1, 2);
  }

  ModuleId id_;
  Linear q_proj_;
  Linear k_proj_;
  Linear v_proj_;
  Linear o_proj_;
  int64_t heads_;
  bool eager_;
  AttentionOptions options_;
};

class VitLayer {
 public:
  VitLayer(const Scope& scope, const ModelArguments& arguments, Activation activation)
      : id_(scope.id()),
        attention_(scope / "attention", arguments),
        layernorm_before_(scope / "layernorm_before"),
        layernorm_after_(scope / "layernorm_after"),
        mlp_id_((scope / "mlp").id()),
        fc1_(scope / "mlp" / "fc1"),
        fc2_(scope / "mlp" / "fc2"),
        activation_(activation),
        dropout_(arguments.config.Float("hidden_dropout_prob")) {}

  Tensor operator()(const Tensor& input, const Tensor& mask) const {
    const InModule in(input.runtime(), id_);
    const Scoped kind(input.runtime().kind, Kind::kResidual);
    Tensor residual = input;
    Tensor hidden = layernorm_before_(input);
    Tensor weights;
    {
      AttentionOutput attention = attention_(hidden, mask);
      hidden = std::move(attention.states);
      weights = std::move(attention.weights);
    }
    hidden = Dropout(hidden, dropout_);
    hidden = Add(hidden, residual);
    residual = hidden;
    hidden = layernorm_after_(hidden);
    hidden = Mlp(hidden);
    hidden = Dropout(hidden, dropout_);
    hidden = Add(hidden, residual);
    return hidden;
  }

 private:
  Tensor Mlp(const Tensor& states) const {
    const InModule in(states.runtime(), mlp_id_);
    const Scoped kind(states.runtime().kind, Kind::kMlp);
    Tensor hidden = fc1_(states);
    hidden = activation_(hidden);
    hidden = fc2_(hidden);
    return hidden;
  }

  ModuleId id_;
  VitAttention attention_;
  LayerNorm layernorm_before_;
  LayerNorm layernorm_after_;
  ModuleId mlp_id_;
  Linear fc1_;
  Linear fc2_;
  Activation activation_;
  double dropout_;
};

class Vit final : public Model {
 public:
  Vit(const ModelArguments& arguments, Activation activation)
      : attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        embeddings_(Root(arguments) / "embeddings", arguments.config),
        layernorm_(Root(arguments) / "layernorm"),
        classifier_(Scope(arguments.weights) / "classifier") {
    for (int64_t i = 0; i < arguments.config.Int("num_hidden_layers"); ++i) {
      layers_.emplace_back((Root(arguments) / "layers")[i], arguments, activation);
    }
  }

  ModelOutput Forward(const Batch& batch) override {
    const Tensor sequence = Encode(batch);
    const Scoped kind(sequence.runtime().kind, Kind::kLogitsLoss);
    const Tensor pooled = Select(sequence, 1, 0);
    const Tensor logits = classifier_(pooled);
    // ForSequenceClassificationLoss
    const Tensor loss = FixedCrossEntropy(View(logits, {-1, logits.size(-1)}),
                                          View(batch.labels, {-1}), batch.num_items_in_batch);
    return {loss, logits, {}};
  }

 private:
  static Scope Root(const ModelArguments& arguments) {
    return Scope(arguments.weights) / arguments.config.model_type();
  }

  // ViTModel.forward; its local embedding_output lives to the end.
  Tensor Encode(const Batch& batch) const {
    const Tensor embedding_output = embeddings_(batch.pixel_values);
    const Tensor mask = CreateBidirectionalMask(attn_, embedding_output, Tensor());
    Tensor hidden = embedding_output;
    for (const VitLayer& layer : layers_) {
      hidden = Checkpoint(
          checkpoint_, [&layer, mask](const Tensor& x) { return layer(x, mask); }, hidden);
    }
    return layernorm_(hidden);
  }

  AttnImplementation attn_;
  CheckpointKind checkpoint_;
  VitEmbeddings embeddings_;
  std::vector<VitLayer> layers_;
  LayerNorm layernorm_;
  Linear classifier_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(arguments.config.String("hidden_act")));
  return std::unique_ptr<Model>(std::make_unique<Vit>(arguments, activation));
}

constexpr Architecture Named(std::string_view model_type) {
  return {.model_type = model_type,
          .accepts_loss_kwargs = [](Task) { return true; },
          .loss_shifts_labels = [](Task) { return false; },
          .make = &Make};
}

}  // namespace

extern const Architecture kDeit = Named("deit");
extern const Architecture kVit = Named("vit");

}  // namespace headroom::predict
