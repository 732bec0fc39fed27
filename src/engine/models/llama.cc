// SPDX-License-Identifier: Apache-2.0
//
// Llama and the decoders that differ from it in names and biases alone (Mistral, Qwen 2), as
// transformers 5.17 runs them (models/llama/modeling_llama.py).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/format.h"
#include "engine/models/families.h"
#include "model/decoder_layout.h"

namespace headroom::engine {
namespace {

using graph::kNoTensor;
using graph::TensorId;

// The rotation of each pair of dimensions per position: transformers 5.17,
// modeling_rope_utils.py, "default", "linear" and "llama3".
class RotaryFrequencies {
 public:
  static Result<std::vector<double>> Of(const ModelConfig& config, int64_t rotary_dim) {
    RotaryFrequencies frequencies(config);
    const double theta = frequencies.Value("rope_theta").value_or(10000.0);
    std::vector<double> result;
    for (int64_t i = 0; i < rotary_dim; i += 2) {
      result.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(rotary_dim)));
    }
    const std::string type = frequencies.Type();
    if (type == "default") return result;
    const double factor = frequencies.Value("factor").value_or(1.0);
    if (type == "linear") {
      for (double& frequency : result) frequency /= factor;
      return result;
    }
    if (type != "llama3") {
      return Error::Unsupported(Format(
          "the native engine does not have rope_type \"{}\"; it has default, linear and llama3",
          type));
    }
    for (double& frequency : result) frequency = frequencies.Llama3(frequency, factor);
    return result;
  }

 private:
  explicit RotaryFrequencies(const ModelConfig& config) : config_(config) {
    parameters_ = config.Object("rope_parameters");
    if (!parameters_) parameters_ = config.Object("rope_scaling");
  }

  std::optional<double> Value(std::string_view key) const {
    if (parameters_ && parameters_->Has(key)) return parameters_->MaybeFloat(key);
    return config_.Has(key) ? config_.MaybeFloat(key) : std::nullopt;
  }

  std::string Type() const {
    for (const std::string_view key : {"rope_type", "type"}) {
      if (parameters_ && parameters_->Has(key)) return parameters_->String(key);
    }
    return "default";
  }

  double Llama3(double frequency, double factor) const {
    const double low = Value("low_freq_factor").value_or(1.0);
    const double high = Value("high_freq_factor").value_or(4.0);
    const double original =
        Value("original_max_position_embeddings")
            .value_or(static_cast<double>(config_.Int("max_position_embeddings")));
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength > original / low) return frequency / factor;
    if (wavelength < original / high) return frequency;
    const double smooth = (original / wavelength - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
  }

  const ModelConfig& config_;
  std::optional<ModelConfig> parameters_;
};

class LlamaBuilder {
 public:
  LlamaBuilder(ModelContext& context, DecoderLayout layout)
      : context_(context),
        config_(context.config),
        layout_(std::move(layout)),
        b_(context.builder),
        hidden_(layout_.hidden),
        eps_(static_cast<float>(config_.Float("rms_norm_eps"))) {}

  Status Run() {
    HEADROOM_RETURN_IF_ERROR(Check());
    HEADROOM_RETURN_IF_ERROR(AddRotaryTables());
    context_.model.base_prefix = "model.";
    lengths_ = context_.Lengths("lengths");
    b_.Enter("model.embed_tokens");
    words_ = b_.EmbeddingTable("model.embed_tokens.weight", Shape{layout_.vocab, hidden_});
    ResidualStream stream{.branch =
                              b_.Embedding({.ids = context_.Ids("input_ids"),
                                            .table = words_,
                                            .padding_row = context_.PaddingRow(layout_.vocab)})};
    for (int64_t layer = 0; layer < layout_.layers; ++layer) {
      Layer(stream, static_cast<int>(layer));
    }
    const TensorId y = Norm(stream, "model.norm", static_cast<int>(layout_.layers) - 1);
    return DecoderHead(context_, y, words_, layout_.tied, lengths_);
  }

 private:
  Status Check() {
    HEADROOM_RETURN_IF_ERROR(
        CheckPositions(context_.max_sequence(), config_.Int("max_position_embeddings")));
    const std::optional<int64_t> window =
        config_.Has("sliding_window") ? config_.MaybeInt("sliding_window") : std::nullopt;
    const bool windowed = config_.MaybeBool("use_sliding_window").value_or(true);
    if (windowed && window && *window < context_.options.rows.sequence) {
      return Error::Unsupported(
          Format("the native engine has no sliding window, and this one of {} is below the "
                 "sequence of {}",
                 *window, context_.options.rows.sequence));
    }
    HEADROOM_ASSIGN_OR_RETURN(activation_, ParseActivation(config_.String("hidden_act")));
    return {};
  }

  Status AddRotaryTables() {
    HEADROOM_ASSIGN_OR_RETURN(const std::vector<double> frequencies,
                              RotaryFrequencies::Of(config_, layout_.rotary_dim));
    const int64_t rows = context_.max_sequence();
    std::vector<float> cosine;
    std::vector<float> sine;
    for (int64_t row = 0; row < rows; ++row) {
      for (const double frequency : frequencies) {
        cosine.push_back(static_cast<float>(std::cos(static_cast<double>(row) * frequency)));
        sine.push_back(static_cast<float>(std::sin(static_cast<double>(row) * frequency)));
      }
    }
    b_.Enter("model.rotary_emb");
    const Shape shape{rows, static_cast<int64_t>(frequencies.size())};
    cosine_ = b_.Buffer("model.rotary_emb.cos", shape);
    sine_ = b_.Buffer("model.rotary_emb.sin", shape);
    context_.model.constants.emplace_back(cosine_, std::move(cosine));
    context_.model.constants.emplace_back(sine_, std::move(sine));
    return {};
  }

  TensorId Norm(ResidualStream& stream, const std::string& name, int layer) {
    b_.Enter(name, layer);
    return NormOf(b_, stream,
                  {.gamma = b_.Weight(name + ".weight", Shape{hidden_}),
                   .norm = graph::NormKind::kRmsNorm,
                   .eps = eps_});
  }

  TensorId Attention(TensorId x, const std::string& at) {
    const int64_t q = layout_.heads * layout_.head_dim;
    const int64_t kv = layout_.kv_heads * layout_.head_dim;
    const Affine qkv = PackedLinear(
        b_, at + ".qkv_proj", {{at + ".q_proj", q}, {at + ".k_proj", kv}, {at + ".v_proj", kv}},
        hidden_, layout_.qkv_bias);
    const TensorId packed = ApplyLinear(b_, x, qkv, Kind::kAttention);
    const int head_dim = static_cast<int>(layout_.head_dim);
    b_.Rope(b_.Columns(packed, 0, q + kv), cosine_, sine_,
            static_cast<int>(layout_.heads + layout_.kv_heads), head_dim);
    const TensorId attended = b_.Attention({.q = b_.Columns(packed, 0, q),
                                            .k = b_.Columns(packed, q, kv),
                                            .v = b_.Columns(packed, q + kv, kv),
                                            .key_lengths = lengths_,
                                            .heads = static_cast<int>(layout_.heads),
                                            .kv_heads = static_cast<int>(layout_.kv_heads),
                                            .head_dim = head_dim,
                                            .causal = true,
                                            .dropout = context_.Rate("attention_dropout")});
    const Affine out = LinearWeights(b_, at + ".o_proj", q, hidden_, layout_.out_bias);
    return ApplyLinear(b_, attended, out, Kind::kAttention);
  }

  void Layer(ResidualStream& stream, int layer) {
    const std::string at = "model.layers." + std::to_string(layer);
    const TensorId x = Norm(stream, at + ".input_layernorm", std::max(layer - 1, 0));
    b_.Enter(at + ".self_attn", layer);
    stream.branch = Attention(x, at + ".self_attn");
    const TensorId y = Norm(stream, at + ".post_attention_layernorm", layer);
    b_.Enter(at + ".mlp", layer);
    const std::string mlp = at + ".mlp.";
    const Affine gate_up =
        PackedLinear(b_, mlp + "gate_up_proj",
                     {{mlp + "gate_proj", layout_.inner}, {mlp + "up_proj", layout_.inner}},
                     hidden_, layout_.mlp_bias);
    const Affine down =
        LinearWeights(b_, mlp + "down_proj", layout_.inner, hidden_, layout_.mlp_bias);
    const TensorId active = b_.Glu(ApplyLinear(b_, y, gate_up, Kind::kMlp), activation_);
    stream.branch = ApplyLinear(b_, active, down, Kind::kMlp);
  }

  ModelContext& context_;
  const ModelConfig& config_;
  const DecoderLayout layout_;
  graph::GraphBuilder& b_;
  const int64_t hidden_;
  const float eps_;
  graph::ActivationKind activation_ = graph::ActivationKind::kSilu;
  TensorId words_ = kNoTensor;
  TensorId lengths_ = kNoTensor;
  TensorId cosine_ = kNoTensor;
  TensorId sine_ = kNoTensor;
};

}  // namespace

Status BuildLlama(ModelContext& context) {
  HEADROOM_ASSIGN_OR_RETURN(DecoderLayout layout, DecoderLayoutOf(context.config));
  return LlamaBuilder(context, std::move(layout)).Run();
}

}  // namespace headroom::engine
