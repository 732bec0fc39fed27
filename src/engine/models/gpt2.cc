// SPDX-License-Identifier: Apache-2.0
//
// GPT-2, as transformers 5.17 runs it (models/gpt2/modeling_gpt2.py): norms before each block, so
// that the sum of one residual is fused with the norm of the next.
#include "engine/models/families.h"
#include "model/parameter_builders.h"

namespace headroom::engine {
namespace {

using graph::kNoTensor;
using graph::TensorId;

class Gpt2Builder {
 public:
  explicit Gpt2Builder(ModelContext& context)
      : context_(context),
        config_(context.config),
        b_(context.builder),
        hidden_(config_.Int("hidden_size")),
        heads_(config_.Int("num_attention_heads")),
        eps_(static_cast<float>(config_.Float("layer_norm_epsilon"))) {}

  Status Run() {
    HEADROOM_RETURN_IF_ERROR(Check());
    context_.model.base_prefix = "transformer.";
    lengths_ = context_.Lengths("lengths");
    b_.Enter("transformer");
    words_ = b_.EmbeddingTable("transformer.wte.weight", Shape{config_.Int("vocab_size"), hidden_});
    const TensorId positions = b_.EmbeddingTable(
        "transformer.wpe.weight", Shape{config_.Int("max_position_embeddings"), hidden_});
    const TensorId embedded = b_.Dropout(
        b_.Embedding({.ids = context_.Ids("input_ids"), .table = words_, .positions = positions}),
        context_.Rate("embd_pdrop"));
    const int64_t layers = config_.Int("num_hidden_layers");
    ResidualStream stream{.branch = embedded};
    for (int64_t layer = 0; layer < layers; ++layer) {
      Layer(stream, static_cast<int>(layer));
    }
    // Belongs to the last layer, as the norm behind each layer does.
    const TensorId y = Norm(stream, "transformer.ln_f", static_cast<int>(layers) - 1);
    const bool tied = config_.MaybeBool("tie_word_embeddings").value_or(true);
    return DecoderHead(context_, y, words_, tied, lengths_);
  }

 private:
  Status Check() {
    HEADROOM_RETURN_IF_ERROR(CheckDivisible(config_, "hidden_size", "num_attention_heads"));
    HEADROOM_RETURN_IF_ERROR(
        CheckPositions(context_.max_sequence(), config_.Int("max_position_embeddings")));
    if (config_.MaybeBool("scale_attn_by_inverse_layer_idx").value_or(false)) {
      return Error::Unsupported("the native engine does not have scale_attn_by_inverse_layer_idx");
    }
    HEADROOM_ASSIGN_OR_RETURN(activation_, ParseActivation(config_.String("activation_function")));
    return {};
  }

  TensorId Norm(ResidualStream& stream, const std::string& name, int layer) {
    b_.Enter(name, layer);
    const Affine norm = NormWeights(b_, name, hidden_);
    return NormOf(b_, stream,
                  {.gamma = norm.weight,
                   .beta = norm.bias,
                   .eps = eps_,
                   .dropout = context_.Rate("resid_pdrop")});
  }

  // transformers' Conv1D keeps its weight as [in, out].
  TensorId Conv1d(TensorId x, const std::string& name, int64_t in, int64_t out, Kind kind) {
    const TensorId weight = b_.Weight(name + ".weight", Shape{in, out});
    const TensorId bias = b_.Weight(name + ".bias", Shape{out});
    return b_.Linear(x, weight, bias, kind, true);
  }

  void Layer(ResidualStream& stream, int layer) {
    const std::string at = "transformer.h." + std::to_string(layer);
    const TensorId x = Norm(stream, at + ".ln_1", layer == 0 ? 0 : layer - 1);
    b_.Enter(at + ".attn", layer);
    const TensorId packed = Conv1d(x, at + ".attn.c_attn", hidden_, 3 * hidden_, Kind::kAttention);
    const TensorId attended = b_.Attention({.q = b_.Columns(packed, 0, hidden_),
                                            .k = b_.Columns(packed, hidden_, hidden_),
                                            .v = b_.Columns(packed, 2 * hidden_, hidden_),
                                            .key_lengths = lengths_,
                                            .heads = static_cast<int>(heads_),
                                            .kv_heads = static_cast<int>(heads_),
                                            .head_dim = static_cast<int>(hidden_ / heads_),
                                            .causal = true,
                                            .dropout = context_.Rate("attn_pdrop")});
    stream.branch = Conv1d(attended, at + ".attn.c_proj", hidden_, hidden_, Kind::kAttention);
    const TensorId y = Norm(stream, at + ".ln_2", layer);
    b_.Enter(at + ".mlp", layer);
    const int64_t inner = config_.MaybeInt("n_inner").value_or(4 * hidden_);
    const TensorId up = Conv1d(y, at + ".mlp.c_fc", hidden_, inner, Kind::kMlp);
    stream.branch =
        Conv1d(b_.Activation(up, activation_), at + ".mlp.c_proj", inner, hidden_, Kind::kMlp);
  }

  ModelContext& context_;
  const ModelConfig& config_;
  graph::GraphBuilder& b_;
  const int64_t hidden_;
  const int64_t heads_;
  const float eps_;
  graph::ActivationKind activation_ = graph::ActivationKind::kGeluTanh;
  TensorId words_ = kNoTensor;
  TensorId lengths_ = kNoTensor;
};

}  // namespace

Status BuildGpt2(ModelContext& context) { return Gpt2Builder(context).Run(); }

}  // namespace headroom::engine
