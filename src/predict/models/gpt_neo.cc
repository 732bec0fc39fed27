// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/gpt_neo/modeling_gpt_neo.py.
#include <tuple>

#include "predict/kv_cache.h"
#include "predict/models/architectures.h"
#include "predict/models/attention.h"
#include "predict/models/decoder_head.h"
#include "predict/models/layer_outputs.h"

namespace headroom::predict {
namespace {

class GptNeoSelfAttention {
 public:
  GptNeoSelfAttention(const Scope& scope, const ModelConfig& config, size_t index)
      : id_(scope.id()),
        index_(index),
        k_proj_(scope / "k_proj"),
        v_proj_(scope / "v_proj"),
        q_proj_(scope / "q_proj"),
        out_proj_(scope / "out_proj"),
        bias_(scope.Get("bias")),
        heads_(config.Int("num_heads")),
        attn_dropout_(config.Float("attention_dropout")),
        resid_dropout_(config.Float("resid_dropout")) {}

  AttentionOutput operator()(const Tensor& hidden, const Tensor& mask, KeyValueCache* past) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    Tensor q = q_proj_(hidden);
    Tensor k = k_proj_(hidden);
    Tensor v = v_proj_(hidden);
    q = Heads(q);
    k = Heads(k);
    v = Heads(v);
    if (past != nullptr) std::tie(k, v) = Cached(*past, index_, k, v);
    AttentionOutput output = Attend(q, k, v, mask);
    Tensor merged = Contiguous(Permute(output.states, {0, 2, 1, 3}));
    merged = View(merged, {hidden.size(0), hidden.size(1), -1});
    output.states = std::move(merged);
    output.states = out_proj_(output.states);
    output.states = Dropout(output.states, resid_dropout_);
    return output;
  }

 private:
  Tensor Heads(const Tensor& x) const {
    return Permute(View(x, {x.size(0), x.size(1), heads_, -1}), {0, 2, 1, 3});
  }

  // _attn: scores of fp32 queries and keys, which autocast computes in its own type all the same.
  AttentionOutput Attend(const Tensor& given_q, const Tensor& given_k, const Tensor& v,
                         const Tensor& mask) const {
    const Scoped kind(v.runtime().kind, Kind::kAttentionScores);
    const Tensor q = To(given_q, DType::kFloat32);
    const Tensor k = To(given_k, DType::kFloat32);
    Tensor weights = Matmul(q, Transpose(k, -1, -2));
    const Tensor causal = Slice(Slice(bias_, 2, k.size(2) - q.size(2), k.size(2)), 3, 0, k.size(2));
    const Tensor lowest = Full(v.runtime(), {}, weights.dtype());
    weights = Where(causal, weights, lowest);
    if (mask.defined()) weights = Add(weights, mask);
    weights = Softmax(weights);
    weights = To(weights, v.dtype());
    weights = Dropout(weights, attn_dropout_);
    return {Matmul(weights, v), weights};
  }

  ModuleId id_;
  size_t index_;
  Linear k_proj_;
  Linear v_proj_;
  Linear q_proj_;
  Linear out_proj_;
  Tensor bias_;
  int64_t heads_;
  double attn_dropout_;
  double resid_dropout_;
};

class GptNeoMlp {
 public:
  GptNeoMlp(const Scope& scope, const ModelConfig& config, Activation activation)
      : id_(scope.id()),
        c_fc_(scope / "c_fc"),
        c_proj_(scope / "c_proj"),
        activation_(activation),
        dropout_(config.Float("resid_dropout")) {}

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
  Linear c_fc_;
  Linear c_proj_;
  Activation activation_;
  double dropout_;
};

class GptNeoBlock {
 public:
  GptNeoBlock(const Scope& scope, const ModelConfig& config, Activation activation, size_t index)
      : id_(scope.id()),
        ln_1_(scope / "ln_1"),
        attn_(scope / "attn" / "attention", config, index),
        ln_2_(scope / "ln_2"),
        mlp_(scope / "mlp", config, activation) {}

  AttentionOutput operator()(const Tensor& input, const Tensor& mask, KeyValueCache* past) const {
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
    return {hidden, attention.weights};
  }

 private:
  ModuleId id_;
  LayerNorm ln_1_;
  GptNeoSelfAttention attn_;
  LayerNorm ln_2_;
  GptNeoMlp mlp_;
};

class GptNeo final : public Model {
 public:
  GptNeo(const ModelArguments& arguments, Activation activation)
      : attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        root_id_(Root(arguments).id()),
        wte_(Root(arguments) / "wte"),
        wpe_(Root(arguments) / "wpe"),
        embed_dropout_(arguments.config.Float("embed_dropout")),
        ln_f_(Root(arguments) / "ln_f"),
        head_(arguments, wte_.weight(),
              {.classifier_dropout = arguments.config.Float("classifier_dropout")}) {
    const Scope blocks = Root(arguments) / "h";
    for (int64_t i = 0; i < arguments.config.Int("num_layers"); ++i) {
      blocks_.emplace_back(blocks[i], arguments.config, activation, static_cast<size_t>(i));
    }
  }

  ModelOutput Forward(const Batch& batch) override {
    const Tensor hidden = Transformer(batch);
    return head_(hidden, batch);
  }

 private:
  static Scope Root(const ModelArguments& arguments) {
    return Scope(arguments.weights) / "transformer";
  }

  // GPTNeoModel.forward; inputs_embeds and position_embeds live to its end.
  Tensor Transformer(const Batch& batch) const {
    Runtime& runtime = batch.input_ids.runtime();
    const InModule in(runtime, root_id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const Tensor inputs_embeds = wte_(batch.input_ids);
    const Tensor position_ids = PositionIdsOf(batch, inputs_embeds);
    const Tensor mask = CreateCausalMask(attn_, inputs_embeds, batch.attention_mask, position_ids,
                                         std::nullopt, true, batch.past_key_values);
    const Tensor position_embeds = wpe_(position_ids);
    Tensor hidden = Add(inputs_embeds, position_embeds);
    hidden = Dropout(hidden, embed_dropout_);
    const KeptWeights kept;
    for (const GptNeoBlock& block : blocks_) {
      hidden = Checkpoint(
          checkpoint_,
          [&block, mask, slot = kept.slot(), past = batch.past_key_values](const Tensor& x) {
            return KeptWeights::Keep(slot, block(x, mask, past));
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
  double embed_dropout_;
  std::vector<GptNeoBlock> blocks_;
  LayerNorm ln_f_;
  DecoderHead head_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  if (arguments.attn == AttnImplementation::kFlashAttention2) {
    return Error::Unsupported("gpt_neo with flash_attention_2 is not modelled");
  }
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(arguments.config.String("activation_function")));
  return std::unique_ptr<Model>(std::make_unique<GptNeo>(arguments, activation));
}

}  // namespace

extern const Architecture kGptNeo = {
    .model_type = "gpt_neo",
    .supports_sdpa = false,
    .accepts_loss_kwargs = [](Task) { return true; },
    .loss_shifts_labels = &ShiftsCausalLabels,
    .make = &Make,
    .caches = true,
};

}  // namespace headroom::predict
