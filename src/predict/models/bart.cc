// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/{bart,mbart,marian,pegasus}/modeling_*.py: one architecture in four
// files, which differ in where they normalise and how they number positions.
#include <optional>
#include <tuple>
#include <vector>

#include "predict/models/bart_layers.h"

namespace headroom::predict {
namespace {

// BartLearnedPositionalEmbedding, which counts from 2, or MarianSinusoidalPositionalEmbedding.
class BartPositions {
 public:
  BartPositions(const Scope& scope, const ModelConfig& config)
      : learned_(BartFormOf(config).learned_positions), embedding_(scope) {
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
        shift_around_eos_(BartFormOf(arguments.config).shift_around_eos) {}

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
  HEADROOM_RETURN_IF_ERROR(CheckLayerdrop(config));
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
