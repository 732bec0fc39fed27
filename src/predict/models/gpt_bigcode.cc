// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/gpt_bigcode/modeling_gpt_bigcode.py.
#include <tuple>

#include "predict/kv_cache.h"
#include "predict/models/architectures.h"
#include "predict/models/attention.h"
#include "predict/models/decoder_head.h"

namespace headroom::predict {
namespace {

class GptBigcodeAttention {
 public:
  GptBigcodeAttention(const Scope& scope, const ModelArguments& arguments, size_t index)
      : id_(scope.id()),
        index_(index),
        c_attn_(scope / "c_attn"),
        c_proj_(scope / "c_proj"),
        heads_(arguments.config.Int("num_attention_heads")),
        head_dim_(arguments.config.Int("hidden_size") / heads_),
        multi_query_(arguments.config.Bool("multi_query")),
        eager_(arguments.attn == AttnImplementation::kEager),
        options_{.dropout = arguments.config.Float("attn_pdrop"),
                 .is_causal = true,
                 .groups = multi_query_ ? heads_ : 1},
        resid_dropout_(arguments.config.Float("resid_pdrop")) {}

  AttentionOutput operator()(const Tensor& hidden, const Tensor& mask, KeyValueCache* past) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    Tensor q;
    Tensor k;
    Tensor v;
    {
      const std::vector<Tensor> parts = QueryKeyValue(hidden);
      q = parts[0];
      k = parts[1];
      v = parts[2];
    }
    if (multi_query_) {
      q = Transpose(View(q, {hidden.size(0), hidden.size(1), -1, head_dim_}), 1, 2);
    }
    if (past != nullptr) std::tie(k, v) = Cached(*past, index_, k, v);
    AttentionOutput output;
    if (eager_) {
      output = EagerAttentionForward(q, k, v, mask, options_);
    } else {
      output.states = SdpaAttentionForward(q, k, v, mask, options_);
    }
    output.states = Contiguous(Reshape(output.states, {hidden.size(0), hidden.size(1), -1}));
    output.states = c_proj_(output.states);
    output.states = Dropout(output.states, resid_dropout_);
    return output;
  }

 private:
  std::vector<Tensor> QueryKeyValue(const Tensor& hidden) const {
    const Tensor fused = c_attn_(hidden);
    if (multi_query_) {
      const int64_t sizes[] = {heads_ * head_dim_, head_dim_, head_dim_};
      return SplitSizes(Unsqueeze(fused, 1), sizes, 3);
    }
    const int64_t sizes[] = {head_dim_, head_dim_, head_dim_};
    const Shape by_head = {hidden.size(0), hidden.size(1), heads_, 3 * head_dim_};
    return SplitSizes(Transpose(View(fused, by_head), 1, 2), sizes, 3);
  }

  ModuleId id_;
  size_t index_;
  Linear c_attn_;
  Linear c_proj_;
  int64_t heads_;
  int64_t head_dim_;
  bool multi_query_;
  bool eager_;
  AttentionOptions options_;
  double resid_dropout_;
};

class GptBigcodeMlp {
 public:
  GptBigcodeMlp(const Scope& scope, const ModelConfig& config, Activation activation)
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
  Linear c_fc_;
  Linear c_proj_;
  Activation activation_;
  double dropout_;
};

class GptBigcodeBlock {
 public:
  GptBigcodeBlock(const Scope& scope, const ModelArguments& arguments, Activation activation,
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
  GptBigcodeAttention attn_;
  LayerNorm ln_2_;
  GptBigcodeMlp mlp_;
};

class GptBigcode final : public Model {
 public:
  GptBigcode(const ModelArguments& arguments, Activation activation)
      : attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        root_id_(Root(arguments).id()),
        wte_(Root(arguments) / "wte"),
        wpe_(Root(arguments) / "wpe"),
        embd_dropout_(arguments.config.Float("embd_pdrop")),
        ln_f_(Root(arguments) / "ln_f"),
        head_(arguments, wte_.weight(),
              {.classifier_dropout = DecoderClassifierDropout(arguments.config)}) {
    const Scope blocks = Root(arguments) / "h";
    for (int64_t i = 0; i < arguments.config.Int("num_hidden_layers"); ++i) {
      blocks_.emplace_back(blocks[i], arguments, activation, static_cast<size_t>(i));
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

  // GPTBigCodeModel.forward; inputs_embeds and position_embeds live to its end.
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
    hidden = Dropout(hidden, embd_dropout_);
    for (const GptBigcodeBlock& block : blocks_) {
      hidden = Checkpoint(
          checkpoint_,
          [&block, mask, past = batch.past_key_values](const Tensor& x) {
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
  std::vector<GptBigcodeBlock> blocks_;
  LayerNorm ln_f_;
  DecoderHead head_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(arguments.config.String("activation_function")));
  return std::unique_ptr<Model>(std::make_unique<GptBigcode>(arguments, activation));
}

}  // namespace

extern const Architecture kGptBigcode = {
    .model_type = "gpt_bigcode",
    .accepts_loss_kwargs = [](Task) { return true; },
    .loss_shifts_labels = &ShiftsCausalLabels,
    .make = &Make,
    .caches = true,
};

}  // namespace headroom::predict
