// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/gpt_neox/modeling_gpt_neox.py.
#include <tuple>

#include "predict/kv_cache.h"
#include "predict/models/architectures.h"
#include "predict/models/attention.h"
#include "predict/models/decoder_head.h"

namespace headroom::predict {
namespace {

struct PositionEmbeddings {
  Tensor cos;
  Tensor sin;
};

Tensor Rotate(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const Tensor straight = Mul(x, cos);
  Tensor turned = RotateHalf(x);
  turned = Mul(turned, sin);
  return Add(straight, turned);
}

Tensor Joined(const Tensor& a, const Tensor& b) {
  const Tensor both[] = {a, b};
  return Cat(both, -1);
}

// apply_rotary_pos_emb: turns the first dimensions of each head and passes the others on.
std::pair<Tensor, Tensor> ApplyPartialRotary(const Tensor& q, const Tensor& k,
                                             const PositionEmbeddings& positions) {
  const Tensor cos = Unsqueeze(positions.cos, 1);
  const Tensor sin = Unsqueeze(positions.sin, 1);
  const int64_t turned = cos.size(-1);
  const Tensor q_turned = Slice(q, -1, 0, turned);
  const Tensor q_pass = Slice(q, -1, turned, q.size(-1));
  const Tensor k_turned = Slice(k, -1, 0, turned);
  const Tensor k_pass = Slice(k, -1, turned, k.size(-1));
  Tensor q_embed = Rotate(q_turned, cos, sin);
  Tensor k_embed = Rotate(k_turned, cos, sin);
  q_embed = Joined(q_embed, q_pass);
  k_embed = Joined(k_embed, k_pass);
  return {q_embed, k_embed};
}

class GptNeoxAttention {
 public:
  GptNeoxAttention(const Scope& scope, const ModelArguments& arguments, size_t index)
      : id_(scope.id()),
        index_(index),
        query_key_value_(scope / "query_key_value"),
        dense_(scope / "dense"),
        head_dim_(arguments.config.Int("hidden_size") /
                  arguments.config.Int("num_attention_heads")),
        eager_(arguments.attn == AttnImplementation::kEager),
        options_{.dropout = arguments.config.Float("attention_dropout"), .is_causal = true} {}

  AttentionOutput operator()(const Tensor& hidden, const PositionEmbeddings& positions,
                             const Tensor& mask, KeyValueCache* past) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    const Shape by_head = {hidden.size(0), hidden.size(1), -1, 3 * head_dim_};
    const Tensor qkv = Transpose(View(query_key_value_(hidden), by_head), 1, 2);
    Tensor q;
    Tensor k;
    Tensor v;
    {
      const std::vector<Tensor> parts = Split(qkv, head_dim_, -1);
      q = parts[0];
      k = parts[1];
      v = parts[2];
    }
    std::tie(q, k) = ApplyPartialRotary(q, k, positions);
    if (past != nullptr) std::tie(k, v) = Cached(*past, index_, k, v);
    AttentionOutput output;
    if (eager_) {
      output = EagerAttentionForward(q, k, v, mask, options_);
    } else {
      output.states = SdpaAttentionForward(q, k, v, mask, options_);
    }
    output.states = Contiguous(Reshape(output.states, {hidden.size(0), hidden.size(1), -1}));
    output.states = dense_(output.states);
    return output;
  }

 private:
  ModuleId id_;
  size_t index_;
  Linear query_key_value_;
  Linear dense_;
  int64_t head_dim_;
  bool eager_;
  AttentionOptions options_;
};

class GptNeoxMlp {
 public:
  GptNeoxMlp(const Scope& scope, Activation activation)
      : id_(scope.id()),
        dense_h_to_4h_(scope / "dense_h_to_4h"),
        dense_4h_to_h_(scope / "dense_4h_to_h"),
        activation_(activation) {}

  Tensor operator()(const Tensor& states) const {
    const InModule in(states.runtime(), id_);
    const Scoped kind(states.runtime().kind, Kind::kMlp);
    Tensor hidden = dense_h_to_4h_(states);
    hidden = activation_(hidden);
    hidden = dense_4h_to_h_(hidden);
    return hidden;
  }

 private:
  ModuleId id_;
  Linear dense_h_to_4h_;
  Linear dense_4h_to_h_;
  Activation activation_;
};

class GptNeoxLayer {
 public:
  GptNeoxLayer(const Scope& scope, const ModelArguments& arguments, Activation activation,
               size_t index)
      : id_(scope.id()),
        input_layernorm_(scope / "input_layernorm"),
        post_attention_layernorm_(scope / "post_attention_layernorm"),
        attention_(scope / "attention", arguments, index),
        mlp_(scope / "mlp", activation),
        parallel_(arguments.config.Bool("use_parallel_residual")),
        dropout_(arguments.config.Float("hidden_dropout")) {}

  Tensor operator()(const Tensor& input, const PositionEmbeddings& positions, const Tensor& mask,
                    KeyValueCache* past) const {
    const InModule in(input.runtime(), id_);
    const Scoped kind(input.runtime().kind, Kind::kResidual);
    AttentionOutput attention = attention_(input_layernorm_(input), positions, mask, past);
    Tensor& attn_output = attention.states;
    attn_output = Dropout(attn_output, dropout_);
    if (parallel_) {
      const Tensor mlp_output = Mlp(input);
      const Tensor sum = Add(mlp_output, attn_output);
      return Add(sum, input);
    }
    attn_output = Add(attn_output, input);
    const Tensor mlp_output = Mlp(attn_output);
    return Add(mlp_output, attn_output);
  }

 private:
  Tensor Mlp(const Tensor& states) const {
    const Tensor output = mlp_(post_attention_layernorm_(states));
    return Dropout(output, dropout_);
  }

  ModuleId id_;
  LayerNorm input_layernorm_;
  LayerNorm post_attention_layernorm_;
  GptNeoxAttention attention_;
  GptNeoxMlp mlp_;
  bool parallel_;
  double dropout_;
};

class GptNeox final : public Model {
 public:
  GptNeox(const ModelArguments& arguments, Activation activation)
      : attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        root_id_(Root(arguments).id()),
        rotary_id_((Root(arguments) / "rotary_emb").id()),
        inv_freq_((Root(arguments) / "rotary_emb").Get("inv_freq")),
        embed_in_(Root(arguments) / "embed_in"),
        dropout_(arguments.config.Float("hidden_dropout")),
        final_layer_norm_(Root(arguments) / "final_layer_norm"),
        head_(arguments, embed_in_.weight(),
              {.classifier_dropout = arguments.config.Float("classifier_dropout"),
               .token_logits_to_float = true}) {
    const Scope layers = Root(arguments) / "layers";
    for (int64_t i = 0; i < arguments.config.Int("num_hidden_layers"); ++i) {
      layers_.emplace_back(layers[i], arguments, activation, static_cast<size_t>(i));
    }
  }

  ModelOutput Forward(const Batch& batch) override {
    const Tensor hidden = Decode(batch);
    return head_(hidden, batch);
  }

 private:
  static Scope Root(const ModelArguments& arguments) {
    return Scope(arguments.weights) / "gpt_neox";
  }

  // GPTNeoXModel.forward; inputs_embeds lives to its end.
  Tensor Decode(const Batch& batch) const {
    Runtime& runtime = batch.input_ids.runtime();
    const InModule in(runtime, root_id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const Tensor inputs_embeds = embed_in_(batch.input_ids);
    const Tensor position_ids = PositionIdsOf(batch, inputs_embeds);
    const Tensor mask = CreateCausalMask(attn_, inputs_embeds, batch.attention_mask, position_ids,
                                         std::nullopt, true, batch.past_key_values);
    Tensor hidden = Dropout(inputs_embeds, dropout_);
    PositionEmbeddings positions;
    {
      const InModule in_rotary(runtime, rotary_id_);
      std::tie(positions.cos, positions.sin) = RotaryEmbedding(inv_freq_, hidden, position_ids);
    }
    for (const GptNeoxLayer& layer : layers_) {
      hidden = Checkpoint(
          checkpoint_,
          // The closure holds the layer's keyword arguments, position_ids among them.
          [&layer, positions, mask, position_ids, past = batch.past_key_values](const Tensor& x) {
            return layer(x, positions, mask, past);
          },
          hidden);
    }
    hidden = final_layer_norm_(hidden);
    return hidden;
  }

  AttnImplementation attn_;
  CheckpointKind checkpoint_;
  ModuleId root_id_;
  ModuleId rotary_id_;
  Tensor inv_freq_;
  Embedding embed_in_;
  double dropout_;
  std::vector<GptNeoxLayer> layers_;
  LayerNorm final_layer_norm_;
  DecoderHead head_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(arguments.config.String("hidden_act")));
  return std::unique_ptr<Model>(std::make_unique<GptNeox>(arguments, activation));
}

}  // namespace

extern const Architecture kGptNeox = {
    .model_type = "gpt_neox",
    .accepts_loss_kwargs = [](Task) { return true; },
    .loss_shifts_labels = &ShiftsCausalLabels,
    .make = &Make,
    .caches = true,
};

}  // namespace headroom::predict
