// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/{bart,mbart,marian,pegasus}/modeling_*.py: one architecture in four
// files, which differ in where they normalise and how they number positions.
#include <tuple>
#include <utility>

#include "predict/kv_cache.h"
#include "predict/models/architectures.h"
#include "predict/models/attention.h"
#include "predict/models/seq2seq.h"

namespace headroom::predict {
namespace {

// In what the four differ.
struct Form {
  bool norm_first;         // layers normalise their input; else their output
  bool learned_positions;  // else sinusoidal, frozen
  bool shift_around_eos;
};

Form FormOf(const ModelConfig& config) {
  const std::string& type = config.model_type();
  return {.norm_first = type == "mbart" || type == "pegasus",
          .learned_positions = type == "bart" || type == "mbart",
          .shift_around_eos = type == "mbart"};
}

class BartAttention {
 public:
  BartAttention(const Scope& scope, const ModelArguments& arguments, int64_t heads, bool is_causal,
                size_t index)
      : id_(scope.id()),
        index_(index),
        k_proj_(scope / "k_proj"),
        v_proj_(scope / "v_proj"),
        q_proj_(scope / "q_proj"),
        out_proj_(scope / "out_proj"),
        heads_(heads),
        eager_(arguments.attn == AttnImplementation::kEager),
        options_{.dropout = arguments.config.Float("attention_dropout"), .is_causal = is_causal} {}

  // `current` is what keys and values are made of: the encoder's output, or undefined, which is
  // `hidden` itself. `past` is the cache of that kind of attention, or null.
  AttentionOutput operator()(const Tensor& hidden, const Tensor& current, const Tensor& mask,
                             KeyValueCache* past) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    const Tensor q = Heads(q_proj_(hidden));
    auto [k, v] = KeysAndValues(current.defined() ? current : hidden, current.defined(), past);
    AttentionOutput output;
    if (eager_) {
      output = Eager(q, k, v, mask);
    } else {
      output.states = SdpaAttentionForward(q, k, v, mask, options_);
    }
    output.states = Contiguous(Reshape(output.states, {hidden.size(0), hidden.size(1), -1}));
    output.states = out_proj_(output.states);
    return output;
  }

 private:
  Tensor Heads(const Tensor& x) const {
    return Transpose(View(x, {x.size(0), x.size(1), heads_, -1}), 1, 2);
  }

  std::pair<Tensor, Tensor> KeysAndValues(const Tensor& current, bool crosses,
                                          KeyValueCache* past) const {
    const auto project = [&] {
      Tensor k = k_proj_(current);
      Tensor v = v_proj_(current);
      k = Heads(k);
      v = Heads(v);
      return std::pair(k, v);
    };
    if (past == nullptr) return project();
    if (crosses) return CachedOnce(*past, index_, project);
    const auto [k, v] = project();
    return Cached(*past, index_, k, v);
  }

  // eager_attention_forward: softmax in the autocast's fp32, without a cast back of its own.
  AttentionOutput Eager(const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& mask) const {
    Tensor weights;
    {
      const Scoped scores(q.runtime().kind, Kind::kAttentionScores);
      weights = Matmul(q, Transpose(k, 2, 3));
      weights = MulScalar(weights);
      if (mask.defined()) weights = Add(weights, mask);
      weights = Softmax(weights);
      weights = Dropout(weights, options_.dropout);
    }
    const Tensor output = Matmul(weights, v);
    return {Contiguous(Transpose(output, 1, 2)), weights};
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

// fc1, activation, fc2 with their norm and residual: the end of every layer.
class BartFeedForward {
 public:
  BartFeedForward(const Scope& scope, const ModelConfig& config, Activation activation)
      : fc1_(scope / "fc1"),
        fc2_(scope / "fc2"),
        norm_(scope / "final_layer_norm"),
        activation_(activation),
        norm_first_(FormOf(config).norm_first),
        dropout_(config.Float("dropout")),
        activation_dropout_(config.Float("activation_dropout")) {}

  Tensor operator()(const Tensor& input) const {
    const Scoped kind(input.runtime().kind, Kind::kMlp);
    Tensor hidden = norm_first_ ? norm_(input) : input;
    {
      const Tensor inner = fc1_(hidden);
      hidden = activation_(inner);
    }
    hidden = Dropout(hidden, activation_dropout_);
    hidden = fc2_(hidden);
    hidden = Dropout(hidden, dropout_);
    {
      const Scoped residual(input.runtime().kind, Kind::kResidual);
      hidden = Add(input, hidden);
    }
    if (!norm_first_) hidden = norm_(hidden);
    return hidden;
  }

 private:
  Linear fc1_;
  Linear fc2_;
  LayerNorm norm_;
  Activation activation_;
  bool norm_first_;
  double dropout_;
  double activation_dropout_;
};

// One attention with its norm and residual.
class BartAttentionBlock {
 public:
  BartAttentionBlock(const Scope& layer, std::string_view name, const ModelArguments& arguments,
                     int64_t heads, bool is_causal, size_t index)
      : attention_(layer / name, arguments, heads, is_causal, index),
        norm_(layer / (std::string(name) + "_layer_norm")),
        norm_first_(FormOf(arguments.config).norm_first),
        dropout_(arguments.config.Float("dropout")) {}

  // `current` undefined: self-attention. `weights` is the caller's name for the probabilities.
  Tensor operator()(const Tensor& input, const Tensor& current, const Tensor& mask,
                    KeyValueCache* past, Tensor& weights) const {
    const Scoped kind(input.runtime().kind, Kind::kResidual);
    Tensor hidden = norm_first_ ? norm_(input) : input;
    {
      AttentionOutput output = attention_(hidden, current, mask, past);
      hidden = std::move(output.states);
      weights = std::move(output.weights);
    }
    hidden = Dropout(hidden, dropout_);
    hidden = Add(input, hidden);
    if (!norm_first_) hidden = norm_(hidden);
    return hidden;
  }

 private:
  BartAttention attention_;
  LayerNorm norm_;
  bool norm_first_;
  double dropout_;
};

class BartEncoderLayer {
 public:
  BartEncoderLayer(const Scope& scope, const ModelArguments& arguments, Activation activation)
      : id_(scope.id()),
        self_attn_(scope, "self_attn", arguments, arguments.config.Int("encoder_attention_heads"),
                   false, 0),
        feed_forward_(scope, arguments.config, activation),
        norm_first_(FormOf(arguments.config).norm_first) {}

  Tensor operator()(const Tensor& input, const Tensor& mask) const {
    const InModule in(input.runtime(), id_);
    Tensor weights;
    Tensor hidden = self_attn_(input, Tensor(), mask, nullptr, weights);
    hidden = feed_forward_(hidden);
    if (hidden.dtype() == DType::kFloat16) {
      if (norm_first_) {
        hidden = Clamp(hidden);
      } else {
        CheckFinite(hidden);
      }
    }
    return hidden;
  }

 private:
  ModuleId id_;
  BartAttentionBlock self_attn_;
  BartFeedForward feed_forward_;
  bool norm_first_;
};

class BartDecoderLayer {
 public:
  BartDecoderLayer(const Scope& scope, const ModelArguments& arguments, Activation activation,
                   size_t index)
      : id_(scope.id()),
        self_attn_(scope, "self_attn", arguments, arguments.config.Int("decoder_attention_heads"),
                   true, index),
        encoder_attn_(scope, "encoder_attn", arguments,
                      arguments.config.Int("decoder_attention_heads"), false, index),
        feed_forward_(scope, arguments.config, activation) {}

  Tensor operator()(const Tensor& input, const Tensor& mask, const Tensor& encoded,
                    const Tensor& encoder_mask, KeyValueCache* past) const {
    const InModule in(input.runtime(), id_);
    KeyValueCache* const crossed = past == nullptr ? nullptr : past->cross_attention();
    Tensor weights;
    Tensor hidden = self_attn_(input, Tensor(), mask, past, weights);
    hidden = encoder_attn_(hidden, encoded, encoder_mask, crossed, weights);
    hidden = feed_forward_(hidden);
    return hidden;
  }

 private:
  ModuleId id_;
  BartAttentionBlock self_attn_;
  BartAttentionBlock encoder_attn_;
  BartFeedForward feed_forward_;
};

// BartLearnedPositionalEmbedding, which counts from 2, or MarianSinusoidalPositionalEmbedding.
class BartPositions {
 public:
  BartPositions(const Scope& scope, const ModelConfig& config)
      : learned_(FormOf(config).learned_positions), embedding_(scope) {
    if (!learned_) embedding_.weight().impl()->leaf_requires_grad = false;
  }

  // Of the encoder, which numbers every row.
  Tensor ForShape(int64_t batch, int64_t sequence) const {
    Runtime& runtime = embedding_.weight().runtime();
    const Tensor position_ids = Range(runtime, sequence);
    if (!learned_) return Frozen(position_ids);
    const Tensor rows = Shift(Expand(position_ids, {batch, -1}));
    return embedding_(rows);
  }

  // Of the decoder, which hands its own numbers in.
  Tensor operator()(const Tensor& position_ids) const {
    if (!learned_) return Frozen(position_ids);
    const Tensor row = Shift(Unsqueeze(position_ids, 0));
    return embedding_(row);
  }

  static Tensor Range(Runtime& runtime, int64_t sequence) {
    const Scoped component(runtime.component, Component::kInputs);
    const Scoped kind(runtime.kind, Kind::kPosition);
    return Arange(runtime, sequence);
  }
  static Tensor Shift(const Tensor& position_ids) {
    const Scoped component(position_ids.runtime().component, Component::kInputs);
    const Scoped kind(position_ids.runtime().kind, Kind::kPosition);
    return AddScalar(position_ids);
  }

 private:
  Tensor Frozen(const Tensor& position_ids) const {
    const Scoped no_grad(position_ids.runtime().grad_enabled, false);
    return embedding_(position_ids);
  }

  bool learned_;
  Embedding embedding_;
};

// What encoder and decoder have in common.
struct BartStack {
  BartStack(const Scope& scope, const ModelArguments& arguments)
      : id(scope.id()),
        attn(arguments.attn),
        checkpoint(arguments.checkpoint),
        positions(scope / "embed_positions", arguments.config),
        dropout(arguments.config.Float("dropout")) {
    const Scope tied = scope / "embed_tokens";
    embed_tokens.emplace(
        tied.Find("weight").defined() ? tied : Scope(arguments.weights) / "model" / "shared");
    // Only the norms that the parameter table has are there.
    const Scope after_embedding = scope / "layernorm_embedding";
    if (after_embedding.Find("weight").defined()) layernorm_embedding.emplace(after_embedding);
    const Scope at_the_end = scope / "layer_norm";
    if (at_the_end.Find("weight").defined()) layer_norm.emplace(at_the_end);
  }

  Tensor Embed(const Tensor& ids) const {
    const Tensor embeddings = (*embed_tokens)(ids);
    return MulScalar(embeddings);
  }

  ModuleId id;
  AttnImplementation attn;
  CheckpointKind checkpoint;
  std::optional<Embedding> embed_tokens;
  BartPositions positions;
  std::optional<LayerNorm> layernorm_embedding;
  std::optional<LayerNorm> layer_norm;
  double dropout;
};

class BartEncoder {
 public:
  BartEncoder(const Scope& scope, const ModelArguments& arguments, Activation activation)
      : stack_(scope, arguments) {
    for (int64_t i = 0; i < arguments.config.Int("encoder_layers"); ++i) {
      layers_.emplace_back((scope / "layers")[i], arguments, activation);
    }
  }

  Tensor operator()(const Batch& batch) const {
    Runtime& runtime = batch.input_ids.runtime();
    const InModule in(runtime, stack_.id);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const Tensor inputs_embeds = stack_.Embed(batch.input_ids);
    const Tensor positions =
        stack_.positions.ForShape(inputs_embeds.size(0), inputs_embeds.size(1));
    Tensor hidden = Add(inputs_embeds, positions);
    if (stack_.layernorm_embedding) hidden = (*stack_.layernorm_embedding)(hidden);
    hidden = Dropout(hidden, stack_.dropout);
    const Tensor mask = CreateBidirectionalMask(stack_.attn, inputs_embeds, batch.attention_mask);
    for (const BartEncoderLayer& layer : layers_) {
      hidden = Checkpoint(
          stack_.checkpoint, [&layer, mask](const Tensor& x) { return layer(x, mask); }, hidden);
    }
    if (stack_.layer_norm) hidden = (*stack_.layer_norm)(hidden);
    return hidden;
  }

 private:
  BartStack stack_;
  std::vector<BartEncoderLayer> layers_;
};

class BartDecoder {
 public:
  BartDecoder(const Scope& scope, const ModelArguments& arguments, Activation activation)
      : stack_(scope, arguments), renames_mask_(arguments.config.model_type() != "bart") {
    for (int64_t i = 0; i < arguments.config.Int("decoder_layers"); ++i) {
      layers_.emplace_back((scope / "layers")[i], arguments, activation, static_cast<size_t>(i));
    }
  }

  Tensor operator()(const Tensor& input_ids, const Tensor& encoded,
                    const Tensor& encoder_attention_mask, KeyValueCache* past) const {
    Runtime& runtime = input_ids.runtime();
    const InModule in(runtime, stack_.id);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const Tensor inputs_embeds = stack_.Embed(input_ids);
    const Tensor position_ids = [&] {
      const Tensor range = BartPositions::Range(runtime, inputs_embeds.size(1));
      return BartPositions::Shift(range);
    }();
    Tensor attention_mask;
    {
      const Scoped component(runtime.component, Component::kInputs);
      const int64_t seen = past == nullptr ? 0 : past->sequence_length();
      const Shape shape = {inputs_embeds.size(0), seen + inputs_embeds.size(1)};
      attention_mask = Empty(runtime, shape, DType::kFloat32);
    }
    const Tensor mask = CreateCausalMask(stack_.attn, inputs_embeds, attention_mask, Tensor(),
                                         std::nullopt, true, past);
    if (!renames_mask_) attention_mask = Tensor();
    const Tensor encoder_mask =
        CreateBidirectionalMask(stack_.attn, inputs_embeds, encoder_attention_mask);
    const Tensor positions = stack_.positions(position_ids);
    Tensor hidden = Add(inputs_embeds, positions);
    if (stack_.layernorm_embedding) hidden = (*stack_.layernorm_embedding)(hidden);
    hidden = Dropout(hidden, stack_.dropout);
    for (const BartDecoderLayer& layer : layers_) {
      const Tensor inputs[] = {hidden, encoded};
      Tensor output = Checkpoint(
          stack_.checkpoint,
          [&layer, mask, encoder_mask, past](std::span<const Tensor> given) {
            return layer(given[0], mask, given[1], encoder_mask, past);
          },
          inputs);
      hidden = std::move(output);
    }
    if (stack_.layer_norm) hidden = (*stack_.layer_norm)(hidden);
    return hidden;
  }

 private:
  BartStack stack_;
  bool renames_mask_;
  std::vector<BartDecoderLayer> layers_;
};

class Bart final : public Model {
 public:
  Bart(const ModelArguments& arguments, Activation activation)
      : encoder_(Scope(arguments.weights) / "model" / "encoder", arguments, activation),
        decoder_(Scope(arguments.weights) / "model" / "decoder", arguments, activation),
        lm_head_(Head(arguments)),
        final_logits_bias_(Scope(arguments.weights).Get("final_logits_bias")),
        shift_around_eos_(FormOf(arguments.config).shift_around_eos) {}

  Tensor Encode(const Batch& batch) override { return encoder_(batch); }

  ModelOutput Forward(const Batch& batch) override {
    if (batch.encoder_states.defined()) return Decode(batch);
    const Tensor decoder_input_ids = shift_around_eos_ ? ShiftTokensRightAroundEos(batch.labels)
                                                       : ShiftTokensRight(batch.labels);
    const Tensor encoded = encoder_(batch);
    const Tensor hidden = decoder_(decoder_input_ids, encoded, batch.attention_mask, nullptr);
    const Scoped kind(hidden.runtime().kind, Kind::kLogitsLoss);
    Tensor logits = lm_head_(hidden);
    logits = Add(logits, final_logits_bias_);
    const Tensor loss = CrossEntropy(View(logits, {-1, logits.size(-1)}), View(batch.labels, {-1}));
    return {loss, logits, {encoded}};
  }

 private:
  // A step of generation: input_ids are the decoder's.
  ModelOutput Decode(const Batch& batch) const {
    const Tensor hidden = decoder_(batch.input_ids, batch.encoder_states, batch.attention_mask,
                                   batch.past_key_values);
    const Scoped kind(hidden.runtime().kind, Kind::kLogitsLoss);
    Tensor logits = lm_head_(hidden);
    logits = Add(logits, final_logits_bias_);
    return {Tensor(), logits, {}};
  }

  static Linear Head(const ModelArguments& arguments) {
    const Scope root(arguments.weights);
    for (const Scope& at : {root / "lm_head", root / "model" / "shared",
                            root / "model" / "decoder" / "embed_tokens"}) {
      const Tensor weight = at.Find("weight");
      if (weight.defined()) return Linear(root / "lm_head", weight);
    }
    HEADROOM_CHECK(false, "a BART without an output matrix");
    return Linear(root / "lm_head");
  }

  BartEncoder encoder_;
  BartDecoder decoder_;
  Linear lm_head_;
  Tensor final_logits_bias_;
  bool shift_around_eos_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  const ModelConfig& config = arguments.config;
  for (const char* name : {"encoder_layerdrop", "decoder_layerdrop"}) {
    if (config.MaybeFloat(name).value_or(0) > 0) {
      return Error::Unsupported(
          std::string(name) +
          " above 0 skips layers at random, which is not modelled: set it to 0");
    }
  }
  const int64_t positions = config.Int("max_position_embeddings");
  if (arguments.recipe.target_sequence_length > positions) {
    return Error::BadInput("target sequence length " +
                           std::to_string(arguments.recipe.target_sequence_length) +
                           " is beyond the model's " + std::to_string(positions) +
                           " positions (max_position_embeddings): lower it");
  }
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(config.String("activation_function")));
  return std::unique_ptr<Model>(std::make_unique<Bart>(arguments, activation));
}

constexpr Architecture Named(std::string_view model_type) {
  return {.model_type = model_type,
          .accepts_loss_kwargs = [](Task) { return true; },
          .loss_shifts_labels = [](Task) { return false; },
          .make = &Make,
          .caches = true,
          .takes_position_ids = false};
}

}  // namespace

extern const Architecture kBart = Named("bart");
extern const Architecture kMarian = Named("marian");
extern const Architecture kMbart = Named("mbart");
extern const Architecture kPegasus = Named("pegasus");

}  // namespace headroom::predict
