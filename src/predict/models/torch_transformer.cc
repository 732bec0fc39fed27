// SPDX-License-Identifier: Apache-2.0
//
// A translation model in plain PyTorch: torch.nn.Transformer (batch_first, post-norm) between two
// embeddings with learned positions and a generator. torch/nn/modules/{transformer,activation}.py
// and torch/nn/functional.py (multi_head_attention_forward), PyTorch 2.11.0, in training mode,
// where the fast path is off.

#include "base/format.h"
#include "predict/models/architectures.h"

namespace headroom::predict {
namespace {

// torch.nn.MultiheadAttention(batch_first=True), called with need_weights=False.
class MultiheadAttention {
 public:
  MultiheadAttention(const Scope& scope, const ModelConfig& config)
      : id_(scope.id()),
        in_proj_weight_(scope.Get("in_proj_weight")),
        in_proj_bias_(scope.Get("in_proj_bias")),
        out_proj_(scope / "out_proj"),
        heads_(config.Int("nhead")),
        dropout_(config.Float("dropout")) {}

  // `memory` undefined: self-attention. A causal mask is only a hint: SDPA's is_causal.
  Tensor operator()(const Tensor& given, const Tensor& memory, bool is_causal) const {
    const InModule in(given.runtime(), id_);
    const Scoped kind(given.runtime().kind, Kind::kAttention);
    const Tensor query = Transpose(given, 1, 0);
    const int64_t length = query.size(0);
    const int64_t batch = query.size(1);
    Projected projected =
        memory.defined() ? ProjectCross(query, Transpose(memory, 1, 0)) : ProjectSelf(query);
    const Tensor q = Heads(projected.q);
    const Tensor k = Heads(projected.k);
    const Tensor v = Heads(projected.v);
    projected = {};
    Tensor output =
        ScaledDotProductAttention(q, k, v, Tensor(), {.dropout = dropout_, .is_causal = is_causal});
    output = View(Contiguous(Permute(output, {2, 0, 1, 3})), {batch * length, -1});
    output = out_proj_(output);
    output = View(output, {length, batch, -1});
    return Transpose(output, 1, 0);
  }

 private:
  struct Projected {
    Tensor q, k, v;
  };

  // [length, batch, embedding] seen as [batch, heads, length, head_dim].
  Tensor Heads(const Tensor& x) const {
    const int64_t batch = x.size(1);
    const Tensor flat = Transpose(View(x, {x.size(0), batch * heads_, -1}), 0, 1);
    return View(flat, {batch, heads_, flat.size(1), flat.size(2)});
  }

  // proj.unflatten(-1, (parts, E)).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous()
  static Tensor Unpack(const Tensor& x, int64_t parts) {
    const Tensor apart = View(x, {x.size(0), x.size(1), parts, -1});
    return Contiguous(Squeeze(Transpose(Unsqueeze(apart, 0), 0, -2), -2));
  }

  // _in_projection_packed.
  Projected ProjectSelf(const Tensor& x) const {
    Tensor projection = LinearOp(x, in_proj_weight_, in_proj_bias_);
    projection = Unpack(projection, 3);
    return {Select(projection, 0, 0), Select(projection, 0, 1), Select(projection, 0, 2)};
  }

  Projected ProjectCross(const Tensor& query, const Tensor& key) const {
    const int64_t width = query.size(2);
    const int64_t sizes[] = {width, 2 * width};
    const std::vector<Tensor> weights = SplitSizes(in_proj_weight_, sizes, 0);
    const std::vector<Tensor> biases = SplitSizes(in_proj_bias_, sizes, 0);
    const Tensor q = LinearOp(query, weights[0], biases[0]);
    Tensor projection = LinearOp(key, weights[1], biases[1]);
    projection = Unpack(projection, 2);
    return {q, Select(projection, 0, 0), Select(projection, 0, 1)};
  }

  ModuleId id_;
  Tensor in_proj_weight_;
  Tensor in_proj_bias_;
  Linear out_proj_;
  int64_t heads_;
  double dropout_;
};

// TransformerEncoderLayer, and with cross-attention TransformerDecoderLayer; norm_first=False.
class TransformerLayer {
 public:
  TransformerLayer(const Scope& scope, const ModelConfig& config, bool is_decoder)
      : id_(scope.id()),
        self_attn_(scope / "self_attn", config),
        linear1_(scope / "linear1"),
        linear2_(scope / "linear2"),
        norm1_(scope / "norm1"),
        norm2_(scope / "norm2"),
        dropout_(config.Float("dropout")) {
    if (!is_decoder) return;
    multihead_attn_.emplace(scope / "multihead_attn", config);
    norm3_.emplace(scope / "norm3");
  }

  // `memory` undefined in the encoder.
  Tensor operator()(const Tensor& input, const Tensor& memory) const {
    const InModule in(input.runtime(), id_);
    Tensor x = input;
    x = AddAndNorm(x, AttentionBlock(self_attn_, x, Tensor(), multihead_attn_.has_value()), norm1_);
    if (multihead_attn_) {
      x = AddAndNorm(x, AttentionBlock(*multihead_attn_, x, memory, false), norm2_);
    }
    x = AddAndNorm(x, FeedForwardBlock(x), norm3_ ? *norm3_ : norm2_);
    return x;
  }

 private:
  Tensor AttentionBlock(const MultiheadAttention& attention, const Tensor& x, const Tensor& memory,
                        bool is_causal) const {
    const Tensor states = attention(x, memory, is_causal);
    return Dropout(states, dropout_);
  }

  Tensor FeedForwardBlock(const Tensor& x) const {
    const Scoped kind(x.runtime().kind, Kind::kMlp);
    Tensor hidden = linear1_(x);
    hidden = Relu(hidden);
    hidden = Dropout(hidden, dropout_);
    hidden = linear2_(hidden);
    return Dropout(hidden, dropout_);
  }

  // norm(x + block): the block's output goes once it is added.
  static Tensor AddAndNorm(const Tensor& x, Tensor block, const LayerNorm& norm) {
    Tensor sum;
    {
      const Scoped kind(x.runtime().kind, Kind::kResidual);
      sum = Add(x, block);
    }
    block = Tensor();
    return norm(sum);
  }

  ModuleId id_;
  MultiheadAttention self_attn_;
  std::optional<MultiheadAttention> multihead_attn_;
  Linear linear1_;
  Linear linear2_;
  LayerNorm norm1_;
  LayerNorm norm2_;
  std::optional<LayerNorm> norm3_;
  double dropout_;
};

class TransformerStack {
 public:
  TransformerStack(const Scope& scope, const ModelConfig& config, bool is_decoder)
      : norm_(scope / "norm") {
    const int64_t layers = config.Int(is_decoder ? "num_decoder_layers" : "num_encoder_layers");
    for (int64_t i = 0; i < layers; ++i) {
      layers_.emplace_back((scope / "layers")[i], config, is_decoder);
    }
  }

  Tensor operator()(const Tensor& input, const Tensor& memory) const {
    Tensor output = input;
    for (const TransformerLayer& layer : layers_) output = layer(output, memory);
    output = norm_(output);
    return output;
  }

 private:
  std::vector<TransformerLayer> layers_;
  LayerNorm norm_;
};

class TorchTransformer final : public Model {
 public:
  TorchTransformer(const Weights& weights, const ModelConfig& config)
      : src_(Scope(weights) / "src"),
        tgt_(Scope(weights) / "tgt"),
        pos_(Scope(weights) / "pos"),
        encoder_(Scope(weights) / "core" / "encoder", config, false),
        decoder_(Scope(weights) / "core" / "decoder", config, true),
        out_(Scope(weights) / "out") {}

  ModelOutput Forward(const Batch& batch) override {
    const Tensor& source = batch.input_ids;
    const Tensor& target = batch.labels;
    Runtime& runtime = source.runtime();
    Tensor source_positions;
    Tensor target_positions;
    Tensor mask;
    {
      const Scoped component(runtime.component, Component::kInputs);
      const Scoped kind(runtime.kind, Kind::kPosition);
      source_positions = Arange(runtime, source.size(1));
      target_positions = Arange(runtime, target.size(1));
      // generate_square_subsequent_mask: triu(full(-inf))
      const Tensor full = Empty(runtime, {target.size(1), target.size(1)}, DType::kFloat32);
      mask = EmptyLike(full);
    }
    Tensor decoded;
    {
      const Tensor src = Embed(src_, source, source_positions);
      const Tensor tgt = Embed(tgt_, target, target_positions);
      const Tensor memory = encoder_(src, Tensor());
      decoded = decoder_(tgt, memory);
    }
    const Scoped kind(runtime.kind, Kind::kLogitsLoss);
    return {Tensor(), out_(decoded), {}};
  }

 private:
  Tensor Embed(const Embedding& embedding, const Tensor& ids, const Tensor& positions) const {
    const Scoped kind(ids.runtime().kind, Kind::kEmbedding);
    const Tensor words = embedding(ids);
    const Tensor places = pos_(positions);
    return Add(words, places);
  }

  Embedding src_;
  Embedding tgt_;
  Embedding pos_;
  TransformerStack encoder_;
  TransformerStack decoder_;
  Linear out_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  const Recipe& recipe = arguments.recipe;
  const int64_t positions = arguments.config.Int("max_len");
  const int64_t longest = std::max(recipe.sequence_length, recipe.target_sequence_length);
  if (longest > positions) {
    return Error::BadInput(
        Format("sequence length {} is beyond the model's {} positions (max_len): lower --seq",
               longest, positions));
  }
  if (arguments.attn != AttnImplementation::kSdpa) {
    return Error::BadInput("torch.nn.MultiheadAttention has no eager form in training: use sdpa");
  }
  if (arguments.checkpoint != CheckpointKind::kNone) {
    return Error::BadInput("torch.nn.Transformer has no gradient checkpointing: leave it out");
  }
  return std::unique_ptr<Model>(
      std::make_unique<TorchTransformer>(arguments.weights, arguments.config));
}

}  // namespace

extern const Architecture kTorchTransformer = {
    .model_type = "torch-transformer",
    .accepts_loss_kwargs = [](Task) { return false; },
    .loss_shifts_labels = [](Task) { return false; },
    .make = &Make,
};

}  // namespace headroom::predict
