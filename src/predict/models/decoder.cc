// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0: the ...DecoderLayer, ...Model and ...ForCausalLM classes of
// models/{llama,cohere,gemma,gemma2,granite,phi,stablelm}/modeling_*.py and their relatives.
#include "predict/models/decoder.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "predict/models/decoder_experts.h"
#include "predict/models/decoder_head.h"
#include "predict/models/decoder_parts.h"

namespace headroom::predict {
namespace {

using Layout = DecoderLayout;

class DecoderLayer {
 public:
  DecoderLayer(const Scope& scope, const ModelArguments& arguments, const Layout& layout,
               const DecoderOptions& options, Activation activation, int64_t index, bool rotates)
      : id_(scope.id()),
        block_(options.block),
        layer_norms_(layout.layer_norms),
        dropout_(options.residual_dropout),
        scales_residual_(options.scales_residual),
        self_attn_(scope / "self_attn", arguments, layout, options, index, rotates) {
    const auto norm = [&](const char* name) { return DecoderNorm(scope / name, layout.norm); };
    if (layout.IsSparse(index)) {
      experts_.emplace(scope / "mlp", layout, options, activation);
    } else {
      mlp_.emplace(scope / "mlp", layout, options, activation);
    }
    using Norms = Layout::LayerNorms;
    const bool before_and_behind = layer_norms_ == Norms::kAround;
    if (layer_norms_ != Norms::kBehind) before_attention_.emplace(norm("input_layernorm"));
    if (layer_norms_ == Norms::kInputAndMiddle) {
      before_mlp_.emplace(norm("post_attention_layernorm"));
    }
    if (before_and_behind) before_mlp_.emplace(norm("pre_feedforward_layernorm"));
    if (before_and_behind || layer_norms_ == Norms::kBehind) {
      behind_attention_.emplace(norm("post_attention_layernorm"));
      behind_mlp_.emplace(norm("post_feedforward_layernorm"));
    }
  }

  Tensor operator()(const Tensor& input, const PositionEmbeddings& positions, const Tensor& mask,
                    KeyValueCache* past) const {
    const InModule in(input.runtime(), id_);
    const Scoped kind(input.runtime().kind, Kind::kResidual);
    switch (block_) {
      case DecoderOptions::Block::kSequential:
        return Sequential(input, positions, mask, past);
      case DecoderOptions::Block::kHoldingNames:
        return HoldingNames(input, positions, mask, past);
      case DecoderOptions::Block::kBranchesFirst:
      case DecoderOptions::Block::kResidualFirst:
        break;
    }
    return Parallel(input, positions, mask, past);
  }

 private:
  // residual + dropout(hidden) * residual_multiplier
  Tensor AddTo(const Tensor& residual, const Tensor& hidden) const {
    const Tensor kept = Dropout(hidden, dropout_);
    return Add(residual, scales_residual_ ? MulScalar(kept) : kept);
  }

  Tensor FeedForward(const Tensor& hidden) const {
    return experts_ ? (*experts_)(hidden) : (*mlp_)(hidden);
  }

  // Each half: norm, run, norm, add; the norms where the class has them.
  Tensor Sequential(const Tensor& input, const PositionEmbeddings& positions, const Tensor& mask,
                    KeyValueCache* past) const {
    Tensor residual = input;
    Tensor hidden = before_attention_ ? (*before_attention_)(input) : input;
    Tensor weights;
    {
      AttentionOutput attention = self_attn_(hidden, positions, mask, past);
      hidden = std::move(attention.states);
      weights = std::move(attention.weights);
    }
    if (behind_attention_) hidden = (*behind_attention_)(hidden);
    hidden = AddTo(residual, hidden);
    residual = hidden;
    if (before_mlp_) hidden = (*before_mlp_)(hidden);
    hidden = FeedForward(hidden);
    if (behind_mlp_) hidden = (*behind_mlp_)(hidden);
    hidden = AddTo(residual, hidden);
    return hidden;
  }

  Tensor HoldingNames(const Tensor& input, const PositionEmbeddings& positions, const Tensor& mask,
                      KeyValueCache* past) const {
    Tensor residual = input;
    const Tensor hidden = (*before_attention_)(input);
    const AttentionOutput attention = self_attn_(hidden, positions, mask, past);
    if (!before_mlp_) {
      Tensor mlp_output = FeedForward(hidden);
      mlp_output = Dropout(mlp_output, dropout_);
      const Tensor sum = Add(residual, attention.states);
      return Add(sum, mlp_output);
    }
    residual = Add(residual, attention.states);
    Tensor mlp_output;
    {
      const Tensor normed = (*before_mlp_)(residual);
      mlp_output = FeedForward(normed);
    }
    mlp_output = Dropout(mlp_output, dropout_);
    return Add(residual, mlp_output);
  }

  Tensor Parallel(const Tensor& input, const PositionEmbeddings& positions, const Tensor& mask,
                  KeyValueCache* past) const {
    const Tensor hidden = (*before_attention_)(input);
    AttentionOutput attention = self_attn_(hidden, positions, mask, past);
    attention.states = Dropout(attention.states, dropout_);
    const Tensor feed_forward = [&] {
      const Tensor output = FeedForward(hidden);
      return Dropout(output, dropout_);
    }();
    if (block_ == DecoderOptions::Block::kBranchesFirst) {
      const Tensor sum = Add(attention.states, feed_forward);
      return Add(sum, input);
    }
    const Tensor sum = Add(input, attention.states);
    return Add(sum, feed_forward);
  }

  ModuleId id_;
  DecoderOptions::Block block_;
  Layout::LayerNorms layer_norms_;
  double dropout_;
  bool scales_residual_;
  DecoderAttention self_attn_;
  std::optional<DecoderMlp> mlp_;
  std::optional<SparseMoeBlock> experts_;
  std::optional<DecoderNorm> before_attention_;
  std::optional<DecoderNorm> behind_attention_;
  std::optional<DecoderNorm> before_mlp_;
  std::optional<DecoderNorm> behind_mlp_;
};

// Which of the two masks and tables a layer gets.
enum class AttentionKind { kFull, kSliding };
constexpr size_t Index(AttentionKind kind) { return static_cast<size_t>(kind); }

std::vector<AttentionKind> LayerKinds(const ModelConfig& config, const Layout& layout) {
  std::vector<AttentionKind> kinds;
  for (const std::string& type : config.Strings("layer_types")) {
    kinds.push_back(type == "sliding_attention" ? AttentionKind::kSliding : AttentionKind::kFull);
  }
  kinds.resize(static_cast<size_t>(layout.layers), AttentionKind::kFull);
  return kinds;
}

class Decoder final : public Model {
 public:
  Decoder(const ModelArguments& arguments, const Layout& layout, const DecoderOptions& options,
          Activation activation)
      : attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        task_(arguments.recipe.task),
        options_(options),
        window_(arguments.config.MaybeInt("sliding_window")),
        root_id_((Scope(arguments.weights) / "model").id()),
        rotary_id_((Scope(arguments.weights) / "model" / "rotary_emb").id()),
        rotary_per_kind_(layout.rotary_per_kind),
        embed_tokens_(Scope(arguments.weights) / "model" / "embed_tokens"),
        norm_(Scope(arguments.weights) / "model" / layout.final_norm, layout.norm),
        head_(arguments, embed_tokens_.weight(),
              {.classifier_dropout = DecoderClassifierDropout(arguments.config),
               .token_logits_to_float = true}),
        kinds_(LayerKinds(arguments.config, layout)) {
    const Scope model = Scope(arguments.weights) / "model";
    embed_scale_ = (model / "embed_tokens").Find("embed_scale");
    const Scope rotary = model / "rotary_emb";
    const std::string kind_names[] = {"full_attention_", "sliding_attention_"};
    for (size_t kind = 0; kind < 2; ++kind) {
      inv_freq_[kind] = rotary.Find(rotary_per_kind_ ? kind_names[kind] + "inv_freq" : "inv_freq");
    }
    const std::vector<int64_t> rotates = arguments.config.Ints("no_rope_layers");
    for (int64_t i = 0; i < layout.layers; ++i) {
      const size_t at = static_cast<size_t>(i);
      layers_.emplace_back((model / "layers")[i], arguments, layout, options, activation, i,
                           rotates.size() <= at || rotates[at] != 0);
    }
  }

  ModelOutput Forward(const Batch& batch) override {
    const Tensor hidden = Decode(batch);
    if (task_ != Task::kCausalLm || head_.is_fused()) return head_(hidden, batch);
    const Scoped kind(hidden.runtime().kind, Kind::kLogitsLoss);
    Tensor logits = head_.Logits(hidden, batch);
    if (options_.logit_scale == DecoderOptions::LogitScale::kMultiply) logits = MulScalar(logits);
    if (options_.logit_scale == DecoderOptions::LogitScale::kDivide) logits = DivScalar(logits);
    if (options_.caps_logits) {
      logits = DivScalar(logits);
      logits = Tanh(logits);
      logits = MulScalar(logits);
    }
    if (!batch.labels.defined()) return {Tensor(), logits, {}};
    const Tensor loss = CausalLmLoss(logits, batch.labels, batch.num_items_in_batch);
    return {loss, logits, {}};
  }

 private:
  using Masks = std::array<Tensor, 2>;
  using Tables = std::array<PositionEmbeddings, 2>;

  Tensor Embed(const Tensor& input_ids) const {
    Tensor embedded = embed_tokens_(input_ids);
    if (embed_scale_.defined()) embedded = Mul(embedded, embed_scale_);
    if (options_.scales_embedding) embedded = MulScalar(embedded);
    return embedded;
  }

  bool HasKind(AttentionKind wanted) const {
    return std::find(kinds_.begin(), kinds_.end(), wanted) != kinds_.end();
  }

  Masks MakeMasks(const Tensor& embedded, const Batch& batch, const Tensor& position_ids) const {
    const auto make = [&](std::optional<int64_t> window) {
      return CreateCausalMask(attn_, embedded, batch.attention_mask, position_ids, window, true,
                              batch.past_key_values);
    };
    switch (options_.masks) {
      case DecoderOptions::Masks::kCausal:
        return {make(std::nullopt), Tensor()};
      case DecoderOptions::Masks::kSlidingIfSet:
        return {make(window_), Tensor()};
      case DecoderOptions::Masks::kByLayer:
      case DecoderOptions::Masks::kBoth:
        break;
    }
    Masks masks;
    masks[0] = make(std::nullopt);
    if (options_.masks == DecoderOptions::Masks::kBoth || HasKind(AttentionKind::kSliding)) {
      masks[1] = make(window_.value_or(0));
    }
    return masks;
  }

  Tables MakeTables(const Tensor& hidden, const Tensor& position_ids) const {
    Tables tables;
    const InModule in(hidden.runtime(), rotary_id_);
    for (const AttentionKind kind : {AttentionKind::kFull, AttentionKind::kSliding}) {
      if (rotary_per_kind_ ? !HasKind(kind) : kind != AttentionKind::kFull) continue;
      PositionEmbeddings& table = tables[Index(kind)];
      std::tie(table.cos, table.sin) =
          RotaryEmbedding(inv_freq_[Index(kind)], hidden, position_ids,
                          options_.rotary != DecoderOptions::Rotary::kInFloat);
    }
    return tables;
  }

  // ...Model.forward; inputs_embeds lives to its end.
  Tensor Decode(const Batch& batch) const {
    Runtime& runtime = batch.input_ids.runtime();
    const InModule in(runtime, root_id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    Tensor inputs_embeds = Embed(batch.input_ids);
    const Tensor position_ids = PositionIdsOf(batch, inputs_embeds);
    const Masks masks = MakeMasks(inputs_embeds, batch, position_ids);
    Tensor hidden = Dropout(inputs_embeds, options_.embedding_dropout);
    if (options_.embedding_dropout_replaces) inputs_embeds = hidden;
    const Tables tables = MakeTables(hidden, position_ids);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const DecoderLayer& layer = layers_[i];
      const size_t of = Index(kinds_[i]);
      const Tensor& mask = masks[options_.masks == DecoderOptions::Masks::kSlidingIfSet ? 0 : of];
      const PositionEmbeddings& positions = tables[rotary_per_kind_ ? of : 0];
      hidden = Checkpoint(
          checkpoint_,
          // The closure holds the layer's keyword arguments, position_ids among them.
          [&layer, positions, mask, position_ids, past = batch.past_key_values](const Tensor& x) {
            return layer(x, positions, mask, past);
          },
          hidden);
    }
    hidden = norm_(hidden);
    return hidden;
  }

  AttnImplementation attn_;
  CheckpointKind checkpoint_;
  Task task_;
  DecoderOptions options_;
  std::optional<int64_t> window_;
  ModuleId root_id_;
  ModuleId rotary_id_;
  bool rotary_per_kind_;
  std::array<Tensor, 2> inv_freq_;
  Embedding embed_tokens_;
  Tensor embed_scale_;
  std::vector<DecoderLayer> layers_;
  DecoderNorm norm_;
  DecoderHead head_;
  std::vector<AttentionKind> kinds_;
};

// Switches of the configs that change the forward in ways not written here.
Status CheckModelled(const ModelConfig& config) {
  for (const char* key : {"use_bidirectional_attention", "output_router_logits"}) {
    if (config.MaybeBool(key).value_or(false)) {
      return Error::Unsupported(config.model_type() + " with " + key + " is not modelled");
    }
  }
  if (config.MaybeFloat("clip_qkv")) {
    return Error::Unsupported(config.model_type() + " with clip_qkv is not modelled");
  }
  if (config.MaybeFloat("router_jitter_noise").value_or(0) > 0) {
    return Error::Unsupported(config.model_type() + " with router_jitter_noise is not modelled");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> MakeDecoder(const ModelArguments& arguments,
                                           const DecoderOptions& options) {
  HEADROOM_RETURN_IF_ERROR(CheckModelled(arguments.config));
  HEADROOM_RETURN_IF_ERROR(CheckDecoderHead(arguments));
  HEADROOM_ASSIGN_OR_RETURN(const DecoderLayout layout, DecoderLayoutOf(arguments.config));
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(arguments.config.String(options.activation)));
  return std::unique_ptr<Model>(std::make_unique<Decoder>(arguments, layout, options, activation));
}

}  // namespace headroom::predict
