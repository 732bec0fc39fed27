// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/whisper/modeling_whisper.py: WhisperForConditionalGeneration with
// labels. A spectrogram goes through two convolutions into an encoder of fixed length; the decoder
// is BART's, with its positions looked up by index.
#include <memory>
#include <vector>

#include "predict/models/bart_layers.h"

namespace headroom::predict {
namespace {

class WhisperConv {
 public:
  WhisperConv(const Scope& scope, int64_t stride)
      : id_(scope.id()), weight_(scope.Get("weight")), bias_(scope.Get("bias")), stride_(stride) {}

  Tensor operator()(const Tensor& x) const {
    const InModule in(x.runtime(), id_);
    return Convolution(x, weight_, bias_, stride_, 1);
  }

 private:
  ModuleId id_;
  Tensor weight_;
  Tensor bias_;
  int64_t stride_;
};

class WhisperEncoder {
 public:
  WhisperEncoder(const Scope& scope, const ModelArguments& arguments, Activation activation)
      : id_(scope.id()),
        checkpoint_(arguments.checkpoint),
        conv1_(scope / "conv1", 1),
        conv2_(scope / "conv2", 2),
        embed_positions_(scope / "embed_positions"),
        positions_(arguments.config.Int("max_source_positions")),
        layer_norm_(scope / "layer_norm"),
        dropout_(arguments.config.Float("dropout")) {
    for (int64_t i = 0; i < arguments.config.Int("encoder_layers"); ++i) {
      layers_.emplace_back((scope / "layers")[i], arguments, activation);
    }
  }

  Tensor operator()(const Tensor& input_features) const {
    Runtime& runtime = input_features.runtime();
    const InModule in(runtime, id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    Tensor inputs_embeds = Gelu(conv1_(input_features));
    inputs_embeds = Gelu(conv2_(inputs_embeds));
    inputs_embeds = Transpose(inputs_embeds, 1, 2);
    const Tensor all_positions = AllPositions(runtime);
    Tensor hidden = Add(inputs_embeds, embed_positions_(all_positions));
    hidden = Dropout(hidden, dropout_);
    for (const BartEncoderLayer& layer : layers_) {
      hidden = Checkpoint(
          checkpoint_, [&layer](const Tensor& x) { return layer(x, Tensor()); }, hidden);
    }
    hidden = layer_norm_(hidden);
    return hidden;
  }

 private:
  Tensor AllPositions(Runtime& runtime) const {
    const Scoped component(runtime.component, Component::kInputs);
    const Scoped kind(runtime.kind, Kind::kPosition);
    return Arange(runtime, positions_);
  }

  ModuleId id_;
  CheckpointKind checkpoint_;
  WhisperConv conv1_;
  WhisperConv conv2_;
  Embedding embed_positions_;
  int64_t positions_;
  std::vector<BartEncoderLayer> layers_;
  LayerNorm layer_norm_;
  double dropout_;
};

class WhisperDecoder {
 public:
  WhisperDecoder(const Scope& scope, const ModelArguments& arguments, Activation activation)
      : id_(scope.id()),
        positions_id_((scope / "embed_positions").id()),
        attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        embed_tokens_(scope / "embed_tokens"),
        positions_((scope / "embed_positions").Get("weight")),
        layer_norm_(scope / "layer_norm"),
        dropout_(arguments.config.Float("dropout")) {
    for (int64_t i = 0; i < arguments.config.Int("decoder_layers"); ++i) {
      layers_.emplace_back((scope / "layers")[i], arguments, activation, static_cast<size_t>(i));
    }
  }

  Tensor operator()(const Tensor& input_ids, const Tensor& encoded) const {
    Runtime& runtime = input_ids.runtime();
    const InModule in(runtime, id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const Tensor inputs_embeds = embed_tokens_(input_ids);
    const Tensor position_ids = PositionIdsOfRows(inputs_embeds);
    const Tensor positions = Positions(position_ids);
    Tensor hidden = Add(inputs_embeds, positions);
    hidden = Dropout(hidden, dropout_);
    const Tensor mask = CreateCausalMask(attn_, inputs_embeds, Tensor(), position_ids);
    for (const BartDecoderLayer& layer : layers_) {
      const Tensor inputs[] = {hidden, encoded};
      Tensor output = Checkpoint(
          checkpoint_,
          [&layer, mask](std::span<const Tensor> given) {
            return layer(given[0], mask, given[1], Tensor(), nullptr);
          },
          inputs);
      hidden = std::move(output);
    }
    hidden = layer_norm_(hidden);
    return hidden;
  }

  const Tensor& word_embeddings() const { return embed_tokens_.weight(); }

 private:
  // torch.arange(sequence) + past, unsqueeze(0).repeat(batch, 1).
  static Tensor PositionIdsOfRows(const Tensor& embeddings) {
    const Scoped component(embeddings.runtime().component, Component::kInputs);
    const Scoped kind(embeddings.runtime().kind, Kind::kPosition);
    const Tensor row = PositionIds(embeddings);
    return RepeatFirst(row, embeddings.size(0));
  }

  // WhisperPositionalEmbedding: weight[position_ids].
  Tensor Positions(const Tensor& position_ids) const {
    const InModule in(position_ids.runtime(), positions_id_);
    return IndexFirst(positions_, position_ids);
  }

  ModuleId id_;
  ModuleId positions_id_;
  AttnImplementation attn_;
  CheckpointKind checkpoint_;
  Embedding embed_tokens_;
  Tensor positions_;
  std::vector<BartDecoderLayer> layers_;
  LayerNorm layer_norm_;
  double dropout_;
};

class Whisper final : public Model {
 public:
  Whisper(const ModelArguments& arguments, Activation activation)
      : encoder_(Scope(arguments.weights) / "model" / "encoder", arguments, activation),
        decoder_(Scope(arguments.weights) / "model" / "decoder", arguments, activation),
        proj_out_(Head(arguments, decoder_.word_embeddings())) {}

  ModelOutput Forward(const Batch& batch) override {
    const Tensor decoder_input_ids = ShiftTokensRight(batch.labels);
    const Tensor encoded = encoder_(batch.input_features);
    const Tensor hidden = decoder_(decoder_input_ids, encoded);
    const Scoped kind(hidden.runtime().kind, Kind::kLogitsLoss);
    const Tensor logits = proj_out_(hidden);
    const Tensor loss = CrossEntropy(View(logits, {-1, logits.size(-1)}), View(batch.labels, {-1}));
    return {loss, logits, {encoded}};
  }

 private:
  static Linear Head(const ModelArguments& arguments, const Tensor& tied) {
    const Scope at = Scope(arguments.weights) / "proj_out";
    return at.Find("weight").defined() ? Linear(at) : Linear(at, tied);
  }

  WhisperEncoder encoder_;
  WhisperDecoder decoder_;
  Linear proj_out_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  const ModelConfig& config = arguments.config;
  if (arguments.recipe.driver == Driver::kGenerate) {
    return Error::Unsupported(
        "generation of whisper, which decodes in windows of 30 s, is not modelled: plan its "
        "training, without --generate");
  }
  if (config.MaybeBool("apply_spec_augment").value_or(false)) {
    return Error::Unsupported("apply_spec_augment is not modelled: set it to false in the config");
  }
  HEADROOM_RETURN_IF_ERROR(CheckLayerdrop(config));
  const int64_t positions = config.Int("max_target_positions");
  if (arguments.recipe.target_sequence_length > positions) {
    return Error::BadInput("target sequence length " +
                           std::to_string(arguments.recipe.target_sequence_length) +
                           " is beyond the decoder's " + std::to_string(positions) +
                           " positions (max_target_positions): lower --target-seq");
  }
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(config.String("activation_function")));
  return std::unique_ptr<Model>(std::make_unique<Whisper>(arguments, activation));
}

}  // namespace

extern const Architecture kWhisper = {.model_type = "whisper",
                                      .accepts_loss_kwargs = [](Task) { return true; },
                                      .loss_shifts_labels = [](Task) { return false; },
                                      .make = &Make,
                                      .takes_position_ids = false};

}  // namespace headroom::predict
