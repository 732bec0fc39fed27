// SPDX-License-Identifier: Apache-2.0
//
// The encoder-decoder Transformer, as transformers 5.17 runs it: BART and Marian with norms behind
// each residual, mBART and Pegasus with norms before each block (models/{bart,marian,mbart,pegasus}
// /modeling_*.py). Marian and Pegasus have sinusoidal positions, which are not trained.
#include <algorithm>
#include <cmath>

#include "engine/models/families.h"
#include "model/parameter_builders.h"

namespace headroom::engine {
namespace {

using graph::kNoTensor;
using graph::TensorId;

constexpr float kEps = 1e-5F;  // torch.nn.LayerNorm
constexpr int64_t kLearnedOffset = 2;

class BartBuilder {
 public:
  explicit BartBuilder(ModelContext& context)
      : context_(context),
        config_(context.config),
        b_(context.builder),
        hidden_(config_.Int("d_model")),
        learned_(config_.model_type() == "bart" || config_.model_type() == "mbart"),
        norm_first_(config_.model_type() == "mbart" || config_.model_type() == "pegasus"),
        dropout_(context.Rate("dropout")) {}

  Status Run() {
    HEADROOM_RETURN_IF_ERROR(Check());
    context_.model.base_prefix = "model.";
    b_.Enter("model");
    words_ = b_.EmbeddingTable("model.shared.weight", Shape{config_.Int("vocab_size"), hidden_});
    const graph::Rows source = context_.options.rows;
    lengths_ = context_.Lengths("lengths");
    encoded_ = Stack("encoder", context_.Ids("input_ids"), 0);
    source_sequence_ = source.sequence;
    const int64_t target = context_.options.target_sequence;
    b_.SetRows({.batch = source.batch, .sequence = target > 0 ? target : source.sequence});
    b_.Enter("model.decoder");
    const TensorId y = Stack("decoder", context_.Ids("decoder_input_ids"),
                             static_cast<int>(config_.Int("encoder_layers")));
    b_.Enter("");
    return Finish(y);
  }

 private:
  Status Check() {
    for (const char* heads : {"encoder_attention_heads", "decoder_attention_heads"}) {
      HEADROOM_RETURN_IF_ERROR(CheckDivisible(config_, "d_model", heads));
    }
    HEADROOM_RETURN_IF_ERROR(
        CheckPositions(std::max(context_.max_sequence(), context_.options.target_sequence),
                       config_.Int("max_position_embeddings")));
    if (!config_.MaybeBool("tie_word_embeddings").value_or(true) ||
        !config_.MaybeBool("share_encoder_decoder_embeddings").value_or(true)) {
      return Error::Unsupported(
          "the native engine trains encoder-decoders whose embeddings are tied and shared");
    }
    if (context_.options.task != Task::kSeq2SeqLm) return UnsupportedNativeTask(context_);
    HEADROOM_ASSIGN_OR_RETURN(activation_, ParseActivation(config_.String("activation_function")));
    return {};
  }

  // Marian's and Pegasus' sines, then cosines.
  std::vector<float> Sinusoids(int64_t rows) const {
    std::vector<float> table;
    const int64_t half = hidden_ / 2;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < hidden_; ++column) {
        const int64_t pair = column < half ? column : column - half;
        const double angle =
            static_cast<double>(row) /
            std::pow(10000.0, 2.0 * static_cast<double>(pair) / static_cast<double>(hidden_));
        table.push_back(static_cast<float>(column < half ? std::sin(angle) : std::cos(angle)));
      }
    }
    return table;
  }

  TensorId Positions(const std::string& at) {
    const int64_t rows = config_.Int("max_position_embeddings");
    const std::string name = at + ".embed_positions.weight";
    if (learned_) return b_.EmbeddingTable(name, Shape{rows + kLearnedOffset, hidden_});
    // The same for both sides.
    if (sinusoids_ == kNoTensor) {
      sinusoids_ = b_.Buffer("model.embed_positions.weight", Shape{rows, hidden_});
      context_.model.constants.emplace_back(sinusoids_, Sinusoids(rows));
    }
    if (config_.model_type() == "pegasus") {
      context_.model.stored_constants.emplace_back(name, sinusoids_);
    }
    return sinusoids_;
  }

  TensorId Embeddings(const std::string& at, TensorId ids) {
    const bool scaled = config_.MaybeBool("scale_embedding").value_or(false);
    const TensorId sum = b_.Embedding(
        {.ids = ids,
         .table = words_,
         .positions = Positions(at),
         .position_offset = learned_ ? static_cast<int>(kLearnedOffset) : 0,
         .scale = scaled ? static_cast<float>(std::sqrt(static_cast<double>(hidden_))) : 1.0F,
         .padding_row = context_.PaddingRow(config_.Int("vocab_size"))});
    if (!learned_) return b_.Dropout(sum, dropout_);
    const Affine norm = NormWeights(b_, at + ".layernorm_embedding", hidden_);
    const TensorId y = b_.Norm({.x = sum, .gamma = norm.weight, .beta = norm.bias, .eps = kEps}).y;
    return b_.Dropout(y, dropout_);
  }

  TensorId Stack(const std::string& side, TensorId ids, int first_layer) {
    const std::string root = "model." + side;
    b_.Enter(root);
    ResidualStream stream{.branch = Embeddings(root, ids)};
    const int64_t layers = config_.Int(side + "_layers");
    for (int64_t i = 0; i < layers; ++i) {
      Layer(stream, side, root + ".layers." + std::to_string(i), first_layer + static_cast<int>(i),
            i == 0);
    }
    if (!norm_first_) return stream.branch;
    return Norm(stream, root + ".layer_norm", first_layer + static_cast<int>(layers) - 1);
  }

  // The norm of the stream: of what is added up before a block, or behind it.
  TensorId Norm(ResidualStream& stream, const std::string& name, int layer) {
    b_.Enter(name, layer);
    const Affine norm = NormWeights(b_, name, hidden_);
    return NormOf(b_, stream,
                  {.gamma = norm.weight, .beta = norm.bias, .eps = kEps, .dropout = dropout_});
  }

  // One block of a layer, `inner` between its residual and its norm.
  template <typename Inner>
  void Block(ResidualStream& stream, const std::string& norm, int layer, int norm_layer,
             const Inner& inner) {
    if (norm_first_) {
      const TensorId x = Norm(stream, norm, norm_layer);
      stream.branch = inner(x);
      return;
    }
    stream.sum = stream.branch;
    stream.branch = inner(stream.sum);
    stream.branch = Norm(stream, norm, layer);
  }

  void Layer(ResidualStream& stream, const std::string& side, const std::string& at, int layer,
             bool first) {
    const int heads = static_cast<int>(config_.Int(side + "_attention_heads"));
    // The norm before the first block adds up the layer before.
    Block(stream, at + ".self_attn_layer_norm", layer, first ? layer : layer - 1, [&](TensorId x) {
      b_.Enter(at + ".self_attn", layer);
      return SelfAttention(x, at + ".self_attn", heads, side == "decoder");
    });
    if (side == "decoder") {
      Block(stream, at + ".encoder_attn_layer_norm", layer, layer, [&](TensorId x) {
        b_.Enter(at + ".encoder_attn", layer);
        return CrossAttention(x, at + ".encoder_attn", heads);
      });
    }
    Block(stream, at + ".final_layer_norm", layer, layer, [&](TensorId x) {
      b_.Enter(at + ".mlp", layer);
      const int64_t inner = config_.Int(side + "_ffn_dim");
      const Affine up = LinearWeights(b_, at + ".fc1", hidden_, inner);
      const Affine down = LinearWeights(b_, at + ".fc2", inner, hidden_);
      const TensorId active = b_.Activation(ApplyLinear(b_, x, up, Kind::kMlp), activation_);
      return ApplyLinear(b_, b_.Dropout(active, context_.Rate("activation_dropout")), down,
                         Kind::kMlp);
    });
  }

  TensorId Attend(graph::AttentionOperands operands, const std::string& at, int heads) {
    operands.heads = heads;
    operands.kv_heads = heads;
    operands.head_dim = static_cast<int>(hidden_ / heads);
    operands.dropout = context_.Rate("attention_dropout");
    const TensorId attended = b_.Attention(operands);
    const Affine out = LinearWeights(b_, at + ".out_proj", hidden_, hidden_);
    return ApplyLinear(b_, attended, out, Kind::kAttention);
  }

  TensorId SelfAttention(TensorId x, const std::string& at, int heads, bool causal) {
    const Affine qkv = PackedLinear(
        b_, at + ".qkv_proj",
        {{at + ".q_proj", hidden_}, {at + ".k_proj", hidden_}, {at + ".v_proj", hidden_}}, hidden_,
        true);
    const TensorId packed = ApplyLinear(b_, x, qkv, Kind::kAttention);
    return Attend({.q = b_.Columns(packed, 0, hidden_),
                   .k = b_.Columns(packed, hidden_, hidden_),
                   .v = b_.Columns(packed, 2 * hidden_, hidden_),
                   // A decoder's padding stands behind all that a token sees.
                   .key_lengths = causal ? kNoTensor : lengths_,
                   .causal = causal},
                  at, heads);
  }

  TensorId CrossAttention(TensorId x, const std::string& at, int heads) {
    const Affine q = LinearWeights(b_, at + ".q_proj", hidden_, hidden_);
    const Affine kv = PackedLinear(
        b_, at + ".kv_proj", {{at + ".k_proj", hidden_}, {at + ".v_proj", hidden_}}, hidden_, true);
    const TensorId queries = ApplyLinear(b_, x, q, Kind::kAttention);
    const TensorId packed = ApplyLinear(b_, encoded_, kv, Kind::kAttention);
    return Attend({.q = queries,
                   .k = b_.Columns(packed, 0, hidden_),
                   .v = b_.Columns(packed, hidden_, hidden_),
                   .key_lengths = lengths_,
                   .key_sequence = source_sequence_},
                  at, heads);
  }

  Status Finish(TensorId y) {
    if (context_.options.head == Head::kHidden) {
      HiddenHead(context_, y);
      return {};
    }
    context_.model.tied = {{"lm_head.weight", "model.shared.weight"},
                           {"model.encoder.embed_tokens.weight", "model.shared.weight"},
                           {"model.decoder.embed_tokens.weight", "model.shared.weight"}};
    const TensorId lengths =
        context_.options.head == Head::kNextToken ? context_.Lengths("decoder_lengths") : kNoTensor;
    LanguageHead(context_, y, words_, kNoTensor, lengths);
    return {};
  }

  ModelContext& context_;
  const ModelConfig& config_;
  graph::GraphBuilder& b_;
  const int64_t hidden_;
  const bool learned_;
  const bool norm_first_;
  const float dropout_;
  graph::ActivationKind activation_ = graph::ActivationKind::kGelu;
  TensorId words_ = kNoTensor;
  TensorId lengths_ = kNoTensor;
  TensorId sinusoids_ = kNoTensor;
  TensorId encoded_ = kNoTensor;
  int64_t source_sequence_ = 0;
};

}  // namespace

Status BuildBart(ModelContext& context) { return BartBuilder(context).Run(); }

}  // namespace headroom::engine
