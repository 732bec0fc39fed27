// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/mpt/modeling_mpt.py.
#include <algorithm>
#include <tuple>

#include "predict/kv_cache.h"
#include "predict/models/alibi.h"
#include "predict/models/architectures.h"
#include "predict/models/attention.h"
#include "predict/models/decoder_head.h"
#include "predict/models/layer_outputs.h"

namespace headroom::predict {
namespace {

// attn_config.attn_pdrop, which the MLP and the residuals use as well.
double DropoutOf(const ModelConfig& config) {
  const std::optional<ModelConfig> attention = config.Object("attn_config");
  return attention ? attention->MaybeFloat("attn_pdrop").value_or(0) : 0;
}

class MptAttention {
 public:
  MptAttention(const Scope& scope, const ModelConfig& config, size_t index)
      : id_(scope.id()),
        index_(index),
        wqkv_(scope / "Wqkv"),
        out_proj_(scope / "out_proj"),
        heads_(config.Int("n_heads")),
        dropout_(DropoutOf(config)) {}

  AttentionOutput operator()(const Tensor& hidden, const Tensor& position_bias, const Tensor& mask,
                             KeyValueCache* past) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    const int64_t sequence = hidden.size(1);
    const Tensor mixed = wqkv_(hidden);
    Tensor q;
    Tensor k;
    Tensor v;
    {
      const std::vector<Tensor> parts = Split(mixed, hidden.size(2), 2);
      q = Heads(parts[0]);
      k = Heads(parts[1]);
      v = Heads(parts[2]);
    }
    if (past != nullptr) std::tie(k, v) = Cached(*past, index_, k, v);
    Tensor scores;
    Tensor weights;
    {
      const Scoped of_scores(hidden.runtime().kind, Kind::kAttentionScores);
      scores = Matmul(q, Transpose(k, -1, -2));
      scores = MulScalar(scores);
      const int64_t positions = position_bias.size(2);
      const Tensor bias =
          Slice(position_bias, 2, std::max<int64_t>(0, positions - k.size(2)), positions);
      scores = Add(scores, bias);
      scores = MaskedFill(scores, mask);
      weights = Softmax(To(scores, DType::kFloat32));
      weights = To(weights, v.dtype());
      weights = Dropout(weights, dropout_);
    }
    Tensor context = Matmul(weights, v);
    context = Contiguous(Permute(context, {0, 2, 1, 3}));
    context = View(context, {hidden.size(0), sequence, -1});
    return {out_proj_(context), weights};
  }

 private:
  Tensor Heads(const Tensor& x) const {
    const Shape shape = {x.size(0), x.size(1), heads_, x.size(2) / heads_};
    return Transpose(Reshape(x, shape), 1, 2);
  }

  ModuleId id_;
  size_t index_;
  Linear wqkv_;
  Linear out_proj_;
  int64_t heads_;
  double dropout_;
};

class MptMlp {
 public:
  MptMlp(const Scope& scope, const ModelConfig& config)
      : id_(scope.id()),
        up_proj_(scope / "up_proj"),
        down_proj_(scope / "down_proj"),
        dropout_(DropoutOf(config)) {}

  Tensor operator()(const Tensor& states, const Tensor& residual) const {
    const InModule in(states.runtime(), id_);
    const Scoped kind(states.runtime().kind, Kind::kMlp);
    const Tensor hidden = Gelu(up_proj_(states));
    const Tensor intermediate = down_proj_(hidden);
    Tensor output = Dropout(intermediate, dropout_);
    output = Add(output, residual);
    return output;
  }

 private:
  ModuleId id_;
  Linear up_proj_;
  Linear down_proj_;
  double dropout_;
};

class MptBlock {
 public:
  MptBlock(const Scope& scope, const ModelConfig& config, size_t index)
      : id_(scope.id()),
        norm_1_(scope / "norm_1"),
        attn_(scope / "attn", config, index),
        norm_2_(scope / "norm_2"),
        ffn_(scope / "ffn", config),
        dropout_(DropoutOf(config)) {}

  AttentionOutput operator()(const Tensor& input, const Tensor& position_bias, const Tensor& mask,
                             KeyValueCache* past) const {
    const InModule in(input.runtime(), id_);
    const Scoped kind(input.runtime().kind, Kind::kResidual);
    Tensor normed = norm_1_(input);
    const AttentionOutput attention = attn_(normed, position_bias, mask, past);
    const Tensor hidden = Add(Dropout(attention.states, dropout_), input);
    normed = norm_2_(hidden);
    return {ffn_(normed, hidden), attention.weights};
  }

 private:
  ModuleId id_;
  LayerNorm norm_1_;
  MptAttention attn_;
  LayerNorm norm_2_;
  MptMlp ffn_;
  double dropout_;
};

class Mpt final : public Model {
 public:
  explicit Mpt(const ModelArguments& arguments)
      : attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        heads_(arguments.config.Int("n_heads")),
        positions_(arguments.config.Int("max_seq_len")),
        root_id_(Root(arguments).id()),
        wte_(Root(arguments) / "wte"),
        norm_f_(Root(arguments) / "norm_f"),
        head_(arguments, wte_.weight(),
              {.classifier_dropout = DecoderClassifierDropout(arguments.config)}) {
    const Scope blocks = Root(arguments) / "blocks";
    for (int64_t i = 0; i < arguments.config.Int("n_layers"); ++i) {
      blocks_.emplace_back(blocks[i], arguments.config, static_cast<size_t>(i));
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

  // MptModel.forward; inputs_embeds lives to its end.
  Tensor Transformer(const Batch& batch) const {
    Runtime& runtime = batch.input_ids.runtime();
    const InModule in(runtime, root_id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const Tensor inputs_embeds = wte_(batch.input_ids);
    Tensor hidden = inputs_embeds;
    const Tensor alibi = BuildMptAlibi(runtime, heads_, positions_);
    Tensor mask = CreateCausalMask(attn_, inputs_embeds, batch.attention_mask, Tensor(),
                                   std::nullopt, true, batch.past_key_values);
    {
      const Scoped of_mask(runtime.kind, Kind::kPosition);
      mask = ToCopy(mask, DType::kBool);
    }
    const KeptWeights kept;
    for (const MptBlock& block : blocks_) {
      hidden = Checkpoint(
          checkpoint_,
          [&block, alibi, mask, slot = kept.slot(), past = batch.past_key_values](const Tensor& x) {
            return KeptWeights::Keep(slot, block(x, alibi, mask, past));
          },
          hidden);
    }
    hidden = norm_f_(hidden);
    return hidden;
  }

  AttnImplementation attn_;
  CheckpointKind checkpoint_;
  int64_t heads_;
  int64_t positions_;
  ModuleId root_id_;
  Embedding wte_;
  std::vector<MptBlock> blocks_;
  LayerNorm norm_f_;
  DecoderHead head_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  const std::optional<ModelConfig> attention = arguments.config.Object("attn_config");
  if (attention && attention->MaybeFloat("clip_qkv").value_or(0) != 0) {
    return Error::Unsupported("mpt with attn_config.clip_qkv is not modelled");
  }
  return std::unique_ptr<Model>(std::make_unique<Mpt>(arguments));
}

}  // namespace

extern const Architecture kMpt = {
    .model_type = "mpt",
    .supports_sdpa = false,
    .accepts_loss_kwargs = [](Task task) { return task != Task::kTokenClassification; },
    .loss_shifts_labels = &ShiftsCausalLabels,
    .make = &Make,
    .caches = true,
    .takes_position_ids = false,
};

}  // namespace headroom::predict
