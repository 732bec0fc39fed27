// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/falcon/modeling_falcon.py.
#include <tuple>

#include "predict/adapters.h"
#include "predict/kv_cache.h"
#include "predict/models/alibi.h"
#include "predict/models/architectures.h"
#include "predict/models/attention.h"
#include "predict/models/decoder_head.h"
#include "predict/models/layer_outputs.h"

namespace headroom::predict {
namespace {

struct Options {
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  bool new_architecture;
  bool multi_query;
  bool parallel;
  bool two_norms;  // of new_architecture: one for the attention, one for the MLP
  bool eager;
  double attention_dropout;
  double hidden_dropout;

  explicit Options(const ModelArguments& arguments) {
    const ModelConfig& config = arguments.config;
    const auto flag = [&](const char* key) { return config.MaybeBool(key).value_or(false); };
    heads = config.Int("num_attention_heads");
    head_dim = config.Int("hidden_size") / heads;
    new_architecture = flag("new_decoder_architecture");
    multi_query = flag("multi_query");
    parallel = flag("parallel_attn");
    const bool one_kv_head = !new_architecture && multi_query;
    kv_heads = one_kv_head ? 1 : config.MaybeInt("num_kv_heads").value_or(heads);
    two_norms = new_architecture && config.MaybeInt("num_ln_in_parallel_attn").value_or(2) == 2;
    eager = arguments.attn == AttnImplementation::kEager;
    attention_dropout = config.MaybeFloat("attention_dropout").value_or(0);
    hidden_dropout = config.MaybeFloat("hidden_dropout").value_or(0);
  }
};

// FalconLinear: the bias is added apart, in the type it has.
class FalconLinear {
 public:
  explicit FalconLinear(const Scope& scope)
      : id_(scope.id()),
        weight_(scope.Get("weight")),
        bias_(scope.Find("bias")),
        adapter_(scope.Adapter()) {}

  Tensor operator()(const Tensor& x) const {
    const InModule in(x.runtime(), id_);
    if (adapter_ == nullptr) return Base(x);
    return WithAdapter(*adapter_, x, [this](const Tensor& input) { return Base(input); });
  }

 private:
  Tensor Base(const Tensor& x) const {
    const Tensor hidden = Matmul(x, T(weight_));
    return bias_.defined() ? Add(hidden, bias_) : hidden;
  }

  ModuleId id_;
  Tensor weight_;
  Tensor bias_;
  const LoraAdapter* adapter_;
};

// dropout_add
Tensor DropoutAdd(const Tensor& x, const Tensor& residual, double probability) {
  Tensor out = Dropout(x, probability);
  out = Add(residual, out);
  return out;
}

// What FalconModel.forward hands to every layer.
struct LayerInputs {
  Tensor alibi;  // [batch, heads, 1, sequence], or undefined with rotary embeddings
  Tensor mask;
  Tensor cos;
  Tensor sin;
  KeyValueCache* past = nullptr;
};

class FalconAttention {
 public:
  FalconAttention(const Scope& scope, const Options& options, size_t index)
      : id_(scope.id()),
        index_(index),
        query_key_value_(scope / "query_key_value"),
        dense_(scope / "dense"),
        options_(options) {}

  AttentionOutput operator()(const Tensor& hidden, const LayerInputs& inputs) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    const int64_t batch = hidden.size(0);
    const int64_t sequence = hidden.size(1);
    const Tensor fused = query_key_value_(hidden);
    Tensor q;
    Tensor k;
    Tensor v;
    {
      std::vector<Tensor> parts = SplitHeads(fused);
      q = std::move(parts[0]);
      k = std::move(parts[1]);
      v = std::move(parts[2]);
    }
    q = HeadsFirst(q);
    k = HeadsFirst(k);
    v = HeadsFirst(v);
    if (!inputs.alibi.defined()) std::tie(q, k) = ApplyRotary(q, k, inputs.cos, inputs.sin);
    if (inputs.past != nullptr) std::tie(k, v) = Cached(*inputs.past, index_, k, v);
    AttentionOutput output;
    if (!options_.eager) {
      const SdpaOptions sdpa = {.dropout = inputs.alibi.defined() ? options_.attention_dropout : 0,
                                .is_causal = !inputs.mask.defined() && sequence > 1};
      output.states = ScaledDotProductAttention(q, k, v, inputs.mask, sdpa);
    } else if (inputs.alibi.defined()) {
      output = EagerWithAlibi(q, k, v, inputs, hidden.dtype());
    } else {
      output = Eager(q, k, v, inputs.mask, hidden.dtype());
    }
    output.states = Permute(output.states, {0, 2, 1, 3});
    output.states = Reshape(output.states, {batch, sequence, -1});
    output.states = dense_(output.states);
    return output;
  }

 private:
  // _split_heads: queries, keys and values of [batch, sequence, heads, head_dim].
  std::vector<Tensor> SplitHeads(const Tensor& fused) const {
    if (options_.new_architecture) return SplitGroups(fused);
    const int64_t batch = fused.size(0);
    const int64_t sequence = fused.size(1);
    if (!options_.multi_query) {
      const Tensor qkv = View(fused, {batch, sequence, options_.heads, 3, options_.head_dim});
      return {Select(qkv, 3, 0), Select(qkv, 3, 1), Select(qkv, 3, 2)};
    }
    const int64_t heads = options_.heads;
    const Tensor qkv = View(fused, {batch, sequence, heads + 2, options_.head_dim});
    return {Slice(qkv, 2, 0, heads), TakeIndex(qkv, 2), TakeIndex(qkv, 2)};
  }

  // The new architecture: groups of queries, each with a key and a value that all its queries see.
  std::vector<Tensor> SplitGroups(const Tensor& fused) const {
    const int64_t group = options_.heads / options_.kv_heads;
    const Tensor qkv =
        View(fused, {fused.size(0), fused.size(1), -1, group + 2, options_.head_dim});
    const Tensor q = Slice(qkv, 3, 0, group);
    Tensor k = TakeIndex(qkv, 3);
    Tensor v = TakeIndex(qkv, 3);
    k = Expand(k, q.shape());
    v = Expand(v, q.shape());
    const Shape flat = {q.size(0), q.size(1), -1, options_.head_dim};
    return {Reshape(q, flat), Reshape(k, flat), Reshape(v, flat)};
  }

  // x.transpose(1, 2).reshape(batch, heads, sequence, head_dim)
  static Tensor HeadsFirst(const Tensor& x) {
    const Tensor first = Transpose(x, 1, 2);
    return Reshape(first, first.shape());
  }

  // Without ALiBi: the scores are divided in place, and nothing is dropped.
  static AttentionOutput Eager(const Tensor& q, const Tensor& k, const Tensor& v,
                               const Tensor& mask, DType dtype) {
    Tensor scores;
    {
      const Scoped kind(q.runtime().kind, Kind::kAttentionScores);
      scores = Matmul(q, Transpose(k, -1, -2));
      scores = DivScalarInPlace(scores);
      scores = Softmax(Add(scores, mask), dtype);
    }
    return {Matmul(scores, v), scores};
  }

  AttentionOutput EagerWithAlibi(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const LayerInputs& inputs, DType dtype) const {
    const Scoped kind(q.runtime().kind, Kind::kAttentionScores);
    const Tensor product = Matmul(q, Transpose(k, -1, -2));
    Tensor scores = product;
    if (IsHalf(scores.dtype())) scores = To(scores, DType::kFloat32);
    Tensor logits = Add(scores, inputs.alibi);
    logits = MulScalarInPlace(logits);
    Tensor probabilities = Softmax(Add(logits, inputs.mask), dtype);
    probabilities = Dropout(probabilities, options_.attention_dropout);
    return {Matmul(probabilities, v), probabilities};
  }

  ModuleId id_;
  size_t index_;
  FalconLinear query_key_value_;
  FalconLinear dense_;
  Options options_;
};

class FalconMlp {
 public:
  FalconMlp(const Scope& scope, Activation activation)
      : id_(scope.id()),
        dense_h_to_4h_(scope / "dense_h_to_4h"),
        dense_4h_to_h_(scope / "dense_4h_to_h"),
        activation_(activation) {}

  Tensor operator()(const Tensor& states) const {
    const InModule in(states.runtime(), id_);
    const Scoped kind(states.runtime().kind, Kind::kMlp);
    Tensor x = activation_(dense_h_to_4h_(states));
    x = dense_4h_to_h_(x);
    return x;
  }

 private:
  ModuleId id_;
  FalconLinear dense_h_to_4h_;
  FalconLinear dense_4h_to_h_;
  Activation activation_;
};

class FalconDecoderLayer {
 public:
  FalconDecoderLayer(const Scope& scope, const Options& options, Activation activation,
                     size_t index)
      : id_(scope.id()),
        options_(options),
        self_attention_(scope / "self_attention", options, index),
        mlp_(scope / "mlp", activation),
        attention_norm_(scope /
                        (options.parallel && options.two_norms ? "ln_attn" : "input_layernorm")) {
    if (!options.parallel) mlp_norm_.emplace(scope / "post_attention_layernorm");
    if (options.parallel && options.two_norms) mlp_norm_.emplace(scope / "ln_mlp");
  }

  AttentionOutput operator()(const Tensor& hidden, const LayerInputs& inputs) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kResidual);
    Tensor residual = hidden;
    const Tensor attention_normed = attention_norm_(hidden);
    Tensor mlp_normed;
    if (options_.two_norms) mlp_normed = (*mlp_norm_)(hidden);
    const AttentionOutput attention = self_attention_(attention_normed, inputs);
    if (!options_.parallel) {
      residual = DropoutAdd(attention.states, residual, options_.attention_dropout);
      mlp_normed = (*mlp_norm_)(residual);
    } else if (!options_.two_norms) {
      mlp_normed = attention_normed;
    }
    Tensor mlp_output = mlp_(mlp_normed);
    if (options_.new_architecture || options_.parallel) {
      mlp_output = AddInPlace(mlp_output, attention.states);
    }
    return {DropoutAdd(mlp_output, residual, options_.hidden_dropout), attention.weights};
  }

 private:
  ModuleId id_;
  Options options_;
  FalconAttention self_attention_;
  FalconMlp mlp_;
  LayerNorm attention_norm_;
  std::optional<LayerNorm> mlp_norm_;
};

class Falcon final : public Model {
 public:
  Falcon(const ModelArguments& arguments, Activation activation)
      : attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        heads_(arguments.config.Int("num_attention_heads")),
        alibi_(arguments.config.MaybeBool("alibi").value_or(false)),
        root_id_(Root(arguments).id()),
        rotary_id_((Root(arguments) / "rotary_emb").id()),
        inv_freq_((Root(arguments) / "rotary_emb").Get("inv_freq")),
        word_embeddings_(Root(arguments) / "word_embeddings"),
        ln_f_(Root(arguments) / "ln_f"),
        head_(arguments, word_embeddings_.weight(),
              {.classifier_dropout = DecoderClassifierDropout(arguments.config)}) {
    const Scope layers = Root(arguments) / "h";
    const Options options(arguments);
    for (int64_t i = 0; i < arguments.config.Int("num_hidden_layers"); ++i) {
      layers_.emplace_back(layers[i], options, activation, static_cast<size_t>(i));
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

  // The mask is always there, so that ALiBi can be written into it.
  LayerInputs MaskAndAlibi(const Batch& batch, const Tensor& inputs_embeds, Tensor& alibi) const {
    LayerInputs inputs;
    inputs.alibi = alibi;
    inputs.mask =
        CreateCausalMask(attn_, inputs_embeds, batch.attention_mask, Tensor(), std::nullopt,
                         /*allow_is_causal_skip=*/false, batch.past_key_values);
    if (!alibi.defined() || !inputs.mask.defined()) return inputs;
    Runtime& runtime = inputs_embeds.runtime();
    const Scoped kind(runtime.kind, Kind::kPosition);
    if (inputs.mask.dtype() == DType::kBool) {
      const Tensor zero = Full(runtime, {}, inputs_embeds.dtype());
      inputs.mask = WhereNumber(inputs.mask, zero);
    }
    inputs.alibi = Reshape(alibi, {inputs_embeds.size(0), -1, 1, alibi.size(2)});
    const Tensor scaled = DivScalar(inputs.alibi);
    const Tensor masked = CompareScalar(inputs.mask);
    inputs.mask = MaskedFill(scaled, masked);
    return inputs;
  }

  // torch.where(mask, value, number)
  static Tensor WhereNumber(const Tensor& mask, const Tensor& value) {
    const Tensor number = Full(value.runtime(), {}, value.dtype());
    const Tensor inputs[] = {mask, value, number};
    return Elementwise("aten::where", inputs, value.dtype());
  }

  // FalconModel.forward; its locals live to its end.
  Tensor Transformer(const Batch& batch) const {
    Runtime& runtime = batch.input_ids.runtime();
    const InModule in(runtime, root_id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const Tensor inputs_embeds = word_embeddings_(batch.input_ids);
    Tensor mask;
    Tensor alibi;
    if (alibi_) {
      mask = batch.attention_mask.defined() ? batch.attention_mask
                                            : Full(runtime, batch.input_ids.shape(), DType::kInt64);
      alibi = BuildAlibi(mask, heads_, inputs_embeds.dtype(), DType::kBFloat16);
    }
    const Tensor position_ids = PositionIdsOf(batch, inputs_embeds);
    LayerInputs inputs = MaskAndAlibi(batch, inputs_embeds, alibi);
    inputs.past = batch.past_key_values;
    Tensor hidden = inputs_embeds;
    {
      const InModule in_rotary(runtime, rotary_id_);
      std::tie(inputs.cos, inputs.sin) = RotaryEmbedding(inv_freq_, hidden, position_ids);
    }
    const KeptWeights kept;
    for (const FalconDecoderLayer& layer : layers_) {
      hidden = Checkpoint(
          checkpoint_,
          // The closure holds the layer's keyword arguments, position_ids among them.
          [&layer, inputs, position_ids, slot = kept.slot()](const Tensor& x) {
            return KeptWeights::Keep(slot, layer(x, inputs));
          },
          hidden);
    }
    hidden = ln_f_(hidden);
    return hidden;
  }

  AttnImplementation attn_;
  CheckpointKind checkpoint_;
  int64_t heads_;
  bool alibi_;
  ModuleId root_id_;
  ModuleId rotary_id_;
  Tensor inv_freq_;
  Embedding word_embeddings_;
  std::vector<FalconDecoderLayer> layers_;
  LayerNorm ln_f_;
  DecoderHead head_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  const Options options(arguments);
  if (arguments.attn == AttnImplementation::kFlashAttention2) {
    return Error::Unsupported("falcon with flash_attention_2 is not modelled");
  }
  if (options.new_architecture && !options.parallel) {
    return Error::Unsupported("falcon with new_decoder_architecture needs parallel_attn");
  }
  HEADROOM_ASSIGN_OR_RETURN(
      const Activation activation,
      FindActivation(arguments.config.MaybeString("activation").value_or("gelu")));
  return std::unique_ptr<Model>(std::make_unique<Falcon>(arguments, activation));
}

}  // namespace

extern const Architecture kFalcon = {
    .model_type = "falcon",
    .accepts_loss_kwargs = [](Task) { return true; },
    .loss_shifts_labels = &ShiftsCausalLabels,
    .make = &Make,
    .caches = true,
};

}  // namespace headroom::predict
