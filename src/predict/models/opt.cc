// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/opt/modeling_opt.py.
#include <tuple>

#include "predict/kv_cache.h"
#include "predict/models/architectures.h"
#include "predict/models/attention.h"
#include "predict/models/decoder_head.h"

namespace headroom::predict {
namespace {

class OptAttention {
 public:
  OptAttention(const Scope& scope, const ModelArguments& arguments, size_t index)
      : id_(scope.id()),
        index_(index),
        k_proj_(scope / "k_proj"),
        v_proj_(scope / "v_proj"),
        q_proj_(scope / "q_proj"),
        out_proj_(scope / "out_proj"),
        heads_(arguments.config.Int("num_attention_heads")),
        eager_(arguments.attn == AttnImplementation::kEager),
        options_{.dropout = arguments.config.Float("attention_dropout"), .is_causal = true} {}

  AttentionOutput operator()(const Tensor& hidden, const Tensor& mask, KeyValueCache* past) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    Tensor q = q_proj_(hidden);
    q = MulScalar(q);  // scaled here, so that the attention itself is not
    q = Heads(q);
    Tensor k = Heads(k_proj_(hidden));
    Tensor v = Heads(v_proj_(hidden));
    if (past != nullptr) std::tie(k, v) = Cached(*past, index_, k, v);
    AttentionOutput output;
    if (eager_) {
      output = EagerAttentionForward(q, k, v, mask, options_);
    } else {
      output.states = SdpaAttentionForward(q, k, v, mask, options_);
    }
    output.states = Contiguous(Reshape(output.states, {hidden.size(0), hidden.size(1), -1}));
    output.states = out_proj_(output.states);
    return output;
  }

 private:
  Tensor Heads(const Tensor& x) const {
    return Transpose(View(x, {x.size(0), -1, heads_, x.size(2) / heads_}), 1, 2);
  }

  ModuleId id_;
  size_t index_;
  Linear k_proj_;
  Linear v_proj_;
  Linear q_proj_;
  Linear out_proj_;
  int64_t heads_;
  bool eager_;
  AttentionOptions options_;
};

class OptDecoderLayer {
 public:
  OptDecoderLayer(const Scope& scope, const ModelArguments& arguments, Activation activation,
                  size_t index)
      : id_(scope.id()),
        self_attn_(scope / "self_attn", arguments, index),
        self_attn_layer_norm_(scope / "self_attn_layer_norm"),
        fc1_(scope / "fc1"),
        fc2_(scope / "fc2"),
        final_layer_norm_(scope / "final_layer_norm"),
        activation_(activation),
        norm_before_(arguments.config.Bool("do_layer_norm_before")),
        dropout_(arguments.config.Float("dropout")) {}

  Tensor operator()(const Tensor& input, const Tensor& mask, KeyValueCache* past) const {
    const InModule in(input.runtime(), id_);
    const Scoped kind(input.runtime().kind, Kind::kResidual);
    Tensor residual = input;
    Tensor hidden = input;
    if (norm_before_) hidden = self_attn_layer_norm_(hidden);
    Tensor weights;
    {
      AttentionOutput attention = self_attn_(hidden, mask, past);
      hidden = std::move(attention.states);
      weights = std::move(attention.weights);
    }
    hidden = Dropout(hidden, dropout_);
    hidden = Add(residual, hidden);
    if (!norm_before_) hidden = self_attn_layer_norm_(hidden);

    const Scoped mlp(input.runtime().kind, Kind::kMlp);
    const Shape shape = hidden.shape();
    hidden = Reshape(hidden, {-1, hidden.size(-1)});
    residual = hidden;
    if (norm_before_) hidden = final_layer_norm_(hidden);
    hidden = fc1_(hidden);
    hidden = activation_(hidden);
    hidden = fc2_(hidden);
    hidden = Dropout(hidden, dropout_);
    hidden = View(Add(residual, hidden), shape);
    if (!norm_before_) hidden = final_layer_norm_(hidden);
    return hidden;
  }

 private:
  ModuleId id_;
  OptAttention self_attn_;
  LayerNorm self_attn_layer_norm_;
  Linear fc1_;
  Linear fc2_;
  LayerNorm final_layer_norm_;
  Activation activation_;
  bool norm_before_;
  double dropout_;
};

template <typename Module>
std::optional<Module> IfPresent(const Scope& scope) {
  if (!scope.Find("weight").defined()) return std::nullopt;
  return Module(scope);
}

class Opt final : public Model {
 public:
  Opt(const ModelArguments& arguments, Activation activation)
      : attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        decoder_id_(Decoder(arguments).id()),
        embed_tokens_(Decoder(arguments) / "embed_tokens"),
        embed_positions_(Decoder(arguments) / "embed_positions"),
        project_out_(IfPresent<Linear>(Decoder(arguments) / "project_out")),
        project_in_(IfPresent<Linear>(Decoder(arguments) / "project_in")),
        final_layer_norm_(IfPresent<LayerNorm>(Decoder(arguments) / "final_layer_norm")),
        head_(arguments, embed_tokens_.weight(), {}) {
    const Scope layers = Decoder(arguments) / "layers";
    for (int64_t i = 0; i < arguments.config.Int("num_hidden_layers"); ++i) {
      layers_.emplace_back(layers[i], arguments, activation, static_cast<size_t>(i));
    }
  }

  ModelOutput Forward(const Batch& batch) override {
    const Tensor hidden = Decode(batch);
    return head_(hidden, batch);
  }

 private:
  static Scope Decoder(const ModelArguments& arguments) {
    return Scope(arguments.weights) / "model" / "decoder";
  }

  // cumsum(mask) * mask - 1, as int64.
  static Tensor MaskedPositions(const Tensor& attention_mask) {
    const Scoped kind(attention_mask.runtime().kind, Kind::kPosition);
    Tensor position_ids = CumSum(attention_mask);
    Tensor masked = Mul(position_ids, attention_mask);
    masked = AddScalar(masked);
    position_ids = To(masked, DType::kInt64);
    return position_ids;
  }

  // OPTDecoder.forward; the locals of its head live to its end.
  Tensor Decode(const Batch& batch) const {
    Runtime& runtime = batch.input_ids.runtime();
    const InModule in(runtime, decoder_id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    Tensor inputs_embeds = embed_tokens_(batch.input_ids);
    const Tensor attention_mask = batch.attention_mask.defined()
                                      ? batch.attention_mask
                                      : Full(runtime, batch.input_ids.shape(), DType::kFloat32);
    const Tensor position_ids =
        batch.position_ids.defined() ? batch.position_ids : MaskedPositions(attention_mask);
    const Tensor mask = CreateCausalMask(attn_, inputs_embeds, attention_mask, Tensor(),
                                         std::nullopt, true, batch.past_key_values);
    const Tensor positions = embed_positions_(AddScalar(position_ids));
    if (project_in_) inputs_embeds = (*project_in_)(inputs_embeds);
    Tensor hidden = Add(inputs_embeds, positions);
    // LayerDrop skips layers at random; what is predicted is a step that skips none.
    for (const OptDecoderLayer& layer : layers_) {
      hidden = Checkpoint(
          checkpoint_,
          // The closure holds the layer's keyword arguments, position_ids among them.
          [&layer, mask, position_ids, past = batch.past_key_values](const Tensor& x) {
            return layer(x, mask, past);
          },
          hidden);
    }
    if (final_layer_norm_) hidden = (*final_layer_norm_)(hidden);
    if (project_out_) hidden = (*project_out_)(hidden);
    return hidden;
  }

  AttnImplementation attn_;
  CheckpointKind checkpoint_;
  ModuleId decoder_id_;
  Embedding embed_tokens_;
  Embedding embed_positions_;
  std::optional<Linear> project_out_;
  std::optional<Linear> project_in_;
  std::optional<LayerNorm> final_layer_norm_;
  std::vector<OptDecoderLayer> layers_;
  DecoderHead head_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(arguments.config.String("activation_function")));
  return std::unique_ptr<Model>(std::make_unique<Opt>(arguments, activation));
}

}  // namespace

extern const Architecture kOpt = {
    .model_type = "opt",
    .accepts_loss_kwargs = [](Task) { return true; },
    .loss_shifts_labels = &ShiftsCausalLabels,
    .make = &Make,
    .caches = true,
};

}  // namespace headroom::predict
