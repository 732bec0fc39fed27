// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/gpt2/modeling_gpt2.py.
#include <tuple>

#include "predict/kv_cache.h"
#include "predict/models/architectures.h"
#include "predict/models/attention.h"
#include "predict/models/decoder_head.h"
#include "predict/quantization.h"

namespace headroom::predict {
namespace {

class Gpt2Attention {
 public:
  Gpt2Attention(const Scope& scope, const ModelArguments& arguments, size_t index)
      : id_(scope.id()),
        index_(index),
        c_attn_(scope / "c_attn"),
        c_proj_(scope / "c_proj"),
        heads_(arguments.config.Int("num_attention_heads")),
        eager_(arguments.attn == AttnImplementation::kEager),
        attn_dropout_(arguments.config.Float("attn_pdrop")),
        resid_dropout_(arguments.config.Float("resid_pdrop")) {}

  AttentionOutput operator()(const Tensor& hidden, const Tensor& mask, KeyValueCache* past) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    Tensor q;
    Tensor k;
    Tensor v;
    {
      const std::vector<Tensor> parts = Split(c_attn_(hidden), hidden.size(2), 2);
      k = Heads(parts[1]);
      v = Heads(parts[2]);
      q = Heads(parts[0]);
    }
    if (past != nullptr) std::tie(k, v) = Cached(*past, index_, k, v);
    AttentionOutput output;
    if (eager_) {
      output = Eager(q, k, v, mask);
    } else {
      output.states =
          SdpaAttentionForward(q, k, v, mask, {.dropout = attn_dropout_, .is_causal = true});
    }
    output.states = Contiguous(Reshape(output.states, {hidden.size(0), hidden.size(1), -1}));
    output.states = c_proj_(output.states);
    output.states = Dropout(output.states, resid_dropout_);
    return output;
  }

 private:
  Tensor Heads(const Tensor& x) const {
    return Transpose(View(x, {x.size(0), x.size(1), heads_, -1}), 1, 2);
  }

  AttentionOutput Eager(const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& mask) const {
    Tensor weights;
    {
      const Scoped scores(q.runtime().kind, Kind::kAttentionScores);
      weights = Matmul(q, Transpose(k, -1, -2));
      weights = MulScalar(weights);
      if (mask.defined()) weights = Add(weights, mask);
      weights = Softmax(weights);
      weights = To(weights, v.dtype());
      weights = Dropout(weights, attn_dropout_);
    }
    return {Transpose(Matmul(weights, v), 1, 2), weights};
  }

  ModuleId id_;
  size_t index_;
  Conv1d c_attn_;
  Conv1d c_proj_;
  int64_t heads_;
  bool eager_;
  double attn_dropout_;
  double resid_dropout_;
};

class Gpt2Mlp {
 public:
  Gpt2Mlp(const Scope& scope, const ModelConfig& config, Activation activation)
      : id_(scope.id()),
        c_fc_(scope / "c_fc"),
        c_proj_(scope / "c_proj"),
        activation_(activation),
        dropout_(config.Float("resid_pdrop")) {}

  Tensor operator()(const Tensor& states) const {
    const InModule in(states.runtime(), id_);
    const Scoped kind(states.runtime().kind, Kind::kMlp);
    Tensor hidden = c_fc_(states);
    hidden = activation_(hidden);
    hidden = c_proj_(hidden);
    hidden = Dropout(hidden, dropout_);
    return hidden;
  }

 private:
  ModuleId id_;
  Conv1d c_fc_;
  Conv1d c_proj_;
  Activation activation_;
  double dropout_;
};

class Gpt2Block {
 public:
  Gpt2Block(const Scope& scope, const ModelArguments& arguments, Activation activation,
            size_t index)
      : id_(scope.id()),
        ln_1_(scope / "ln_1"),
        attn_(scope / "attn", arguments, index),
        ln_2_(scope / "ln_2"),
        mlp_(scope / "mlp", arguments.config, activation) {}

  Tensor operator()(const Tensor& input, const Tensor& mask, KeyValueCache* past) const {
    const InModule in(input.runtime(), id_);
    const Scoped kind(input.runtime().kind, Kind::kResidual);
    Tensor residual = input;
    Tensor hidden = ln_1_(input);
    const AttentionOutput attention = attn_(hidden, mask, past);
    hidden = Add(attention.states, residual);
    residual = hidden;
    hidden = ln_2_(hidden);
    const Tensor feed_forward = mlp_(hidden);
    hidden = Add(residual, feed_forward);
    return hidden;
  }

 private:
  ModuleId id_;
  LayerNorm ln_1_;
  Gpt2Attention attn_;
  LayerNorm ln_2_;
  Gpt2Mlp mlp_;
};

class Gpt2 final : public Model {
 public:
  Gpt2(const ModelArguments& arguments, Activation activation)
      : attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        root_id_((Scope(arguments.weights) / "transformer").id()),
        wte_(Scope(arguments.weights) / "transformer" / "wte"),
        wpe_(Scope(arguments.weights) / "transformer" / "wpe"),
        embd_dropout_(arguments.config.Float("embd_pdrop")),
        ln_f_(Scope(arguments.weights) / "transformer" / "ln_f"),
        head_(arguments, wte_.weight(),
              {.classifier_dropout = DecoderClassifierDropout(arguments.config)}) {
    const Scope blocks = Scope(arguments.weights) / "transformer" / "h";
    for (int64_t i = 0; i < arguments.config.Int("num_hidden_layers"); ++i) {
      blocks_.emplace_back(blocks[i], arguments, activation, static_cast<size_t>(i));
    }
  }

  ModelOutput Forward(const Batch& batch) override {
    const Tensor hidden = Transformer(batch);
    return head_(hidden, batch);
  }

 private:
  // GPT2Model.forward; inputs_embeds and position_embeds live to its end.
  Tensor Transformer(const Batch& batch) const {
    Runtime& runtime = batch.input_ids.runtime();
    const InModule in(runtime, root_id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const Tensor inputs_embeds = wte_(batch.input_ids);
    const Tensor position_ids = PositionIdsOf(batch, inputs_embeds);
    const Tensor position_embeds = wpe_(position_ids);
    Tensor hidden = Add(inputs_embeds, position_embeds);
    const Tensor mask = CreateCausalMask(attn_, inputs_embeds, batch.attention_mask, position_ids,
                                         std::nullopt, true, batch.past_key_values);
    hidden = Dropout(hidden, embd_dropout_);
    for (const Gpt2Block& block : blocks_) {
      hidden = Checkpoint(
          checkpoint_,  // The closure holds the layer's keyword arguments, position_ids among them.
          [&block, mask, position_ids, past = batch.past_key_values](const Tensor& x) {
            return block(x, mask, past);
          },
          hidden);
    }
    hidden = ln_f_(hidden);
    return View(hidden, hidden.shape());
  }

  AttnImplementation attn_;
  CheckpointKind checkpoint_;
  ModuleId root_id_;
  Embedding wte_;
  Embedding wpe_;
  double embd_dropout_;
  std::vector<Gpt2Block> blocks_;
  LayerNorm ln_f_;
  DecoderHead head_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  const ModelConfig& config = arguments.config;
  HEADROOM_RETURN_IF_ERROR(CheckDecoderHead(arguments));
  if (config.MaybeBool("reorder_and_upcast_attn").value_or(false) &&
      arguments.attn == AttnImplementation::kEager) {
    return Error::Unsupported("reorder_and_upcast_attn with eager attention is not modelled");
  }
  if (config.MaybeBool("add_cross_attention").value_or(false)) {
    return Error::Unsupported("gpt2 with add_cross_attention is not modelled");
  }
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(config.String("activation_function")));
  return std::unique_ptr<Model>(std::make_unique<Gpt2>(arguments, activation));
}

}  // namespace

extern const Architecture kGpt2 = {
    .model_type = "gpt2",
    .accepts_loss_kwargs = [](Task) { return true; },
    // The class name GPT2LMHeadModel matches no entry of LOSS_MAPPING.
    .loss_shifts_labels = [](Task) { return false; },
    .make = &Make,
    .caches = true,
};

}  // namespace headroom::predict
