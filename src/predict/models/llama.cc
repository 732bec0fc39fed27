// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/llama/modeling_llama.py.
#include <tuple>

#include "predict/models/architectures.h"
#include "predict/models/attention.h"

namespace headroom::predict {
namespace {

class LlamaRmsNorm {
 public:
  explicit LlamaRmsNorm(const Scope& scope) : id_(scope.id()), weight_(scope.Get("weight")) {}

  Tensor operator()(const Tensor& x) const {
    Runtime& runtime = x.runtime();
    const InModule in(runtime, id_);
    const Scoped kind(runtime.kind, Kind::kNorm);
    Tensor hidden = To(x, DType::kFloat32);
    Tensor variance;
    {
      const Tensor squares = Pow(hidden, 2);
      variance = Mean(squares, -1, true);
    }
    {
      Tensor scale = AddScalar(variance);
      scale = Rsqrt(scale);
      hidden = Mul(hidden, scale);
    }
    return Mul(weight_, To(hidden, x.dtype()));
  }

 private:
  ModuleId id_;
  Tensor weight_;
};

struct PositionEmbeddings {
  Tensor cos;
  Tensor sin;
};

class LlamaAttention {
 public:
  LlamaAttention(const Scope& scope, const ModelArguments& arguments)
      : id_(scope.id()),
        q_proj_(scope / "q_proj"),
        k_proj_(scope / "k_proj"),
        v_proj_(scope / "v_proj"),
        o_proj_(scope / "o_proj"),
        eager_(arguments.attn == AttnImplementation::kEager),
        options_{.dropout = arguments.config.Float("attention_dropout"), .is_causal = true} {
    const int64_t heads = arguments.config.Int("num_attention_heads");
    options_.groups = heads / arguments.config.MaybeInt("num_key_value_heads").value_or(heads);
    head_dim_ = arguments.config.MaybeInt("head_dim").value_or(
        arguments.config.Int("hidden_size") / heads);
  }

  AttentionOutput operator()(const Tensor& hidden, const PositionEmbeddings& positions,
                             const Tensor& mask) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    Tensor q = Heads(q_proj_(hidden));
    Tensor k = Heads(k_proj_(hidden));
    const Tensor v = Heads(v_proj_(hidden));
    std::tie(q, k) = ApplyRotary(q, k, positions.cos, positions.sin);
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
    return Transpose(View(x, {x.size(0), x.size(1), -1, head_dim_}), 1, 2);
  }

  ModuleId id_;
  Linear q_proj_;
  Linear k_proj_;
  Linear v_proj_;
  Linear o_proj_;
  bool eager_;
  AttentionOptions options_;
  int64_t head_dim_;
};

class LlamaMlp {
 public:
  LlamaMlp(const Scope& scope, Activation activation)
      : id_(scope.id()),
        gate_proj_(scope / "gate_proj"),
        up_proj_(scope / "up_proj"),
        down_proj_(scope / "down_proj"),
        activation_(activation) {}

  Tensor operator()(const Tensor& x) const {
    const InModule in(x.runtime(), id_);
    const Scoped kind(x.runtime().kind, Kind::kMlp);
    // down_proj(act_fn(gate_proj(x)) * up_proj(x))
    Tensor gate = gate_proj_(x);
    gate = activation_(gate);
    const Tensor product = [&] {
      const Tensor gated = std::move(gate);
      const Tensor up = up_proj_(x);
      return Mul(gated, up);
    }();
    return down_proj_(product);
  }

 private:
  ModuleId id_;
  Linear gate_proj_;
  Linear up_proj_;
  Linear down_proj_;
  Activation activation_;
};

class LlamaDecoderLayer {
 public:
  LlamaDecoderLayer(const Scope& scope, const ModelArguments& arguments, Activation activation)
      : id_(scope.id()),
        self_attn_(scope / "self_attn", arguments),
        mlp_(scope / "mlp", activation),
        input_layernorm_(scope / "input_layernorm"),
        post_attention_layernorm_(scope / "post_attention_layernorm") {}

  Tensor operator()(const Tensor& input, const PositionEmbeddings& positions,
                    const Tensor& mask) const {
    const InModule in(input.runtime(), id_);
    const Scoped kind(input.runtime().kind, Kind::kResidual);
    Tensor residual = input;
    Tensor hidden = input_layernorm_(input);
    Tensor weights;
    {
      AttentionOutput attention = self_attn_(hidden, positions, mask);
      hidden = std::move(attention.states);
      weights = std::move(attention.weights);
    }
    hidden = Add(residual, hidden);
    residual = hidden;
    hidden = post_attention_layernorm_(hidden);
    hidden = mlp_(hidden);
    hidden = Add(residual, hidden);
    return hidden;
  }

 private:
  ModuleId id_;
  LlamaAttention self_attn_;
  LlamaMlp mlp_;
  LlamaRmsNorm input_layernorm_;
  LlamaRmsNorm post_attention_layernorm_;
};

class Llama final : public Model {
 public:
  Llama(const ModelArguments& arguments, Activation activation)
      : attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        root_id_((Scope(arguments.weights) / "model").id()),
        rotary_id_((Scope(arguments.weights) / "model" / "rotary_emb").id()),
        inv_freq_((Scope(arguments.weights) / "model" / "rotary_emb").Get("inv_freq")),
        embed_tokens_(Scope(arguments.weights) / "model" / "embed_tokens"),
        norm_(Scope(arguments.weights) / "model" / "norm"),
        lm_head_(Head(arguments)) {
    const Scope layers = Scope(arguments.weights) / "model" / "layers";
    for (int64_t i = 0; i < arguments.config.Int("num_hidden_layers"); ++i) {
      layers_.emplace_back(layers[i], arguments, activation);
    }
  }

  ModelOutput Forward(const Batch& batch) override {
    const Tensor hidden = Decode(batch);
    const Scoped kind(hidden.runtime().kind, Kind::kLogitsLoss);
    const Tensor logits = lm_head_(hidden);
    const Tensor loss = CausalLmLoss(logits, batch.labels, batch.num_items_in_batch);
    return {loss, logits, {}};
  }

 private:
  static Linear Head(const ModelArguments& arguments) {
    const Scope root(arguments.weights);
    const Tensor untied = (root / "lm_head").Find("weight");
    return Linear(root / "lm_head",
                  untied.defined() ? untied : (root / "model" / "embed_tokens").Get("weight"));
  }

  // LlamaModel.forward; inputs_embeds lives to its end.
  Tensor Decode(const Batch& batch) const {
    Runtime& runtime = batch.input_ids.runtime();
    const InModule in(runtime, root_id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const Tensor inputs_embeds = embed_tokens_(batch.input_ids);
    const Tensor position_ids = PositionIds(inputs_embeds);
    const Tensor mask = CreateCausalMask(attn_, inputs_embeds, batch.attention_mask, position_ids);
    Tensor hidden = inputs_embeds;
    PositionEmbeddings positions;
    {
      const InModule in_rotary(runtime, rotary_id_);
      std::tie(positions.cos, positions.sin) = RotaryEmbedding(inv_freq_, hidden, position_ids);
    }
    for (const LlamaDecoderLayer& layer : layers_) {
      hidden = Checkpoint(
          checkpoint_,
          // The closure holds the layer's keyword arguments, position_ids among them.
          [&layer, positions, mask, position_ids](const Tensor& x) {
            return layer(x, positions, mask);
          }, hidden);
    }
    hidden = norm_(hidden);
    return hidden;
  }

  AttnImplementation attn_;
  CheckpointKind checkpoint_;
  ModuleId root_id_;
  ModuleId rotary_id_;
  Tensor inv_freq_;
  Embedding embed_tokens_;
  std::vector<LlamaDecoderLayer> layers_;
  LlamaRmsNorm norm_;
  Linear lm_head_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  if (arguments.recipe.task != Task::kCausalLm) {
    return Error::Unsupported("llama is modelled for causal-lm only");
  }
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(arguments.config.String("hidden_act")));
  return std::unique_ptr<Model>(std::make_unique<Llama>(arguments, activation));
}

}  // namespace

extern const Architecture kLlama = {
    .model_type = "llama",
    .accepts_loss_kwargs = [](Task) { return true; },
    .loss_shifts_labels = [](Task task) { return task == Task::kCausalLm; },
    .make = &Make,
};

}  // namespace headroom::predict
