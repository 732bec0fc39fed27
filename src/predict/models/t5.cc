// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/t5/modeling_t5.py and models/mt5/modeling_mt5.py.
#include <tuple>
#include <utility>

#include "predict/kv_cache.h"
#include "predict/models/architectures.h"
#include "predict/models/attention.h"
#include "predict/models/seq2seq.h"

namespace headroom::predict {
namespace {

class T5LayerNorm {
 public:
  explicit T5LayerNorm(const Scope& scope) : id_(scope.id()), weight_(scope.Get("weight")) {}

  Tensor operator()(const Tensor& input) const {
    const InModule in(input.runtime(), id_);
    const Scoped kind(input.runtime().kind, Kind::kNorm);
    Tensor variance;
    {
      Tensor squares = To(input, DType::kFloat32);
      squares = Pow(squares, 2);
      variance = Mean(squares, -1, true);
    }
    Tensor hidden;
    {
      Tensor scale = AddScalar(variance);
      scale = Rsqrt(scale);
      hidden = Mul(input, scale);
    }
    if (IsHalf(weight_.dtype())) hidden = To(hidden, weight_.dtype());
    return Mul(weight_, hidden);
  }

 private:
  ModuleId id_;
  Tensor weight_;
};

// T5LayerFF around T5DenseActDense or T5DenseGatedActDense.
class T5FeedForward {
 public:
  T5FeedForward(const Scope& scope, const ModelConfig& config, Activation activation)
      : id_((scope / "DenseReluDense").id()),
        wo_weight_((scope / "DenseReluDense" / "wo").Get("weight")),
        wo_(scope / "DenseReluDense" / "wo"),
        norm_(scope / "layer_norm"),
        activation_(activation),
        dropout_(config.Float("dropout_rate")) {
    const Scope dense = scope / "DenseReluDense";
    if (config.Bool("is_gated_act")) {
      wi_.emplace(dense / "wi_0");
      wi_1_.emplace(dense / "wi_1");
    } else {
      wi_.emplace(dense / "wi");
    }
  }

  Tensor operator()(const Tensor& hidden) const {
    const Scoped kind(hidden.runtime().kind, Kind::kMlp);
    Tensor forwarded = norm_(hidden);
    forwarded = wi_1_ ? Gated(forwarded) : Plain(forwarded);
    const Tensor dropped = Dropout(forwarded, dropout_);
    const Scoped residual(hidden.runtime().kind, Kind::kResidual);
    return Add(hidden, dropped);
  }

 private:
  Tensor Plain(const Tensor& states) const {
    const InModule in(states.runtime(), id_);
    Tensor hidden = (*wi_)(states);
    hidden = activation_(hidden);
    return Out(std::move(hidden));
  }

  Tensor Gated(const Tensor& states) const {
    const InModule in(states.runtime(), id_);
    Tensor hidden_gelu;
    {
      const Tensor gate = (*wi_)(states);
      hidden_gelu = activation_(gate);
    }
    const Tensor hidden_linear = (*wi_1_)(states);
    return Out(Mul(hidden_gelu, hidden_linear));
  }

  // The weight's dtype wins over what the activation left, even where autocast casts it back.
  Tensor Out(Tensor hidden) const {
    hidden = Dropout(hidden, dropout_);
    hidden = To(hidden, wo_weight_.dtype());
    hidden = wo_(hidden);
    return hidden;
  }

  ModuleId id_;
  std::optional<Linear> wi_;
  std::optional<Linear> wi_1_;
  Tensor wo_weight_;
  Linear wo_;
  T5LayerNorm norm_;
  Activation activation_;
  double dropout_;
};

// What a T5Attention returns besides its states.
struct T5AttentionOutput {
  Tensor states;
  Tensor position_bias;
  Tensor weights;
};

// Whole-number ops: outside autograd, reported as positions.
class PositionScope {
 public:
  explicit PositionScope(Runtime& runtime)
      : kind_(runtime.kind, Kind::kPosition), component_(runtime.component, Component::kInputs) {}

 private:
  Scoped<Kind> kind_;
  Scoped<Component> component_;
};

Tensor Whole(const char* name, const Tensor& a) {
  return Elementwise(name, std::span(&a, 1), a.dtype());
}
Tensor Whole(const char* name, const Tensor& a, const Tensor& b) {
  const Tensor both[] = {a, b};
  return Elementwise(name, both, a.dtype());
}

// max_exact + (log(distance.float() / max_exact) / log(…) * (…)).to(torch.long), capped.
Tensor LargeBuckets(const Tensor& distance) {
  Tensor large;
  {
    Tensor real = ToCopy(distance, DType::kFloat32);
    for (const char* op : {"aten::div", "aten::log", "aten::div", "aten::mul"})
      real = Whole(op, real);
    large = ToCopy(real, DType::kInt64);
  }
  large = Whole("aten::add", large);
  const Tensor last = EmptyLike(large);
  return Whole("aten::minimum", large, last);
}

// _relative_position_bucket.
Tensor RelativePositionBucket(const Tensor& relative, bool bidirectional) {
  Tensor position = relative;
  Tensor buckets;
  if (bidirectional) {
    Tensor right = CompareScalar(position);
    right = ToCopy(right, DType::kInt64);
    right = Whole("aten::mul", right);
    buckets = Whole("aten::add", right);
    right = Tensor();
    position = Whole("aten::abs", position);
  } else {
    Tensor smallest;
    {
      const Tensor zeros = EmptyLike(position);
      smallest = Whole("aten::minimum", position, zeros);
    }
    position = Whole("aten::neg", smallest);
  }
  const Tensor is_small = CompareScalar(position);
  const Tensor if_large = LargeBuckets(position);
  const Tensor choices[] = {is_small, position, if_large};
  const Tensor chosen = Elementwise("aten::where", choices, DType::kInt64);
  // 0 + tensor is a new one; tensor + tensor happens in place.
  return bidirectional ? buckets : Whole("aten::add", chosen);
}

// Where keys and values go: into the output of a training step, or into the cache of generate.
struct T5Cache {
  std::vector<Tensor>* kept = nullptr;
  KeyValueCache* past = nullptr;
};

class T5Attention {
 public:
  // `is_decoder`: of the decoder stack, whose caches keep what `caches` allows.
  T5Attention(const Scope& scope, const ModelArguments& arguments, bool is_decoder, bool is_causal,
              size_t index)
      : id_(scope.id()),
        index_(index),
        q_(scope / "q"),
        k_(scope / "k"),
        v_(scope / "v"),
        o_(scope / "o"),
        heads_(arguments.config.Int("num_heads")),
        eager_(arguments.attn == AttnImplementation::kEager),
        is_decoder_(is_decoder),
        is_causal_(is_causal),
        checkpointed_(arguments.checkpoint != CheckpointKind::kNone),
        dropout_(arguments.config.Float("dropout_rate")) {
    const Scope bias = scope / "relative_attention_bias";
    if (bias.Find("weight").defined()) relative_attention_bias_.emplace(bias);
  }

  // `encoded` undefined: self-attention. `cache` null: no cache.
  T5AttentionOutput operator()(const Tensor& hidden, const Tensor& mask, const Tensor& encoded,
                               const Tensor& given_bias, const T5Cache& cached) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    const Tensor q = Heads(q_(hidden));
    std::vector<Tensor>* const cache = cached.kept;
    auto [k, v] = KeysAndValues(hidden, encoded, cached.past);
    if (cache != nullptr) {
      // DynamicLayer.update: torch.cat of the empty cache and the new states.
      Tensor keys = Cat(std::span(&k, 1), -2);
      Tensor values = Cat(std::span(&v, 1), -2);
      k = std::move(keys);
      v = std::move(values);
      cache->push_back(k);
      cache->push_back(v);
    }
    Tensor position_bias = given_bias.defined() ? given_bias : MakeBias(q, k);
    AttentionOutput output = eager_
                                 ? AutocastAttentionForward(q, k, v, mask, dropout_, position_bias)
                                 : AttentionOutput{Sdpa(q, k, v, mask, position_bias), Tensor()};
    output.states = Contiguous(Reshape(output.states, {hidden.size(0), hidden.size(1), -1}));
    output.states = o_(output.states);
    return {output.states, position_bias, output.weights};
  }

 private:
  Tensor Heads(const Tensor& x) const {
    return Transpose(View(x, {x.size(0), x.size(1), heads_, -1}), 1, 2);
  }

  std::pair<Tensor, Tensor> KeysAndValues(const Tensor& hidden, const Tensor& encoded,
                                          KeyValueCache* past) const {
    const Tensor& current = encoded.defined() ? encoded : hidden;
    const auto project = [&] {
      Tensor k = Heads(k_(current));
      Tensor v = Heads(v_(current));
      return std::pair(k, v);
    };
    if (past == nullptr) return project();
    if (encoded.defined()) return CachedOnce(*past->cross_attention(), index_, project);
    const auto [k, v] = project();
    return Cached(*past, index_, k, v);
  }

  Tensor MakeBias(const Tensor& q, const Tensor& k) const {
    if (relative_attention_bias_) return ComputeBias(q.runtime(), q.size(2), k.size(2));
    const Scoped kind(q.runtime().kind, Kind::kPosition);
    Tensor zeros = Zeros(q.runtime(), {1, heads_, q.size(2), k.size(2)}, q.dtype());
    if (checkpointed_ && q.runtime().grad_enabled) zeros.impl()->leaf_requires_grad = true;
    return zeros;
  }

  Tensor ComputeBias(Runtime& runtime, int64_t query_length, int64_t key_length) const {
    const Scoped kind(runtime.kind, Kind::kPosition);
    Tensor context_position;
    Tensor memory_position;
    Tensor relative_position;
    Tensor bucket;
    {
      const PositionScope scope(runtime);
      {
        const Tensor range = Arange(runtime, query_length);
        context_position = Whole("aten::add", Unsqueeze(range, 1));
      }
      memory_position = Unsqueeze(Arange(runtime, key_length), 0);
      relative_position = Whole("aten::sub", memory_position, context_position);
      bucket = RelativePositionBucket(relative_position, !is_decoder_);
    }
    Tensor values = (*relative_attention_bias_)(bucket);
    values = Unsqueeze(Permute(values, {2, 0, 1}), 0);
    return values;
  }

  // sdpa_attention_forward with a position_bias (create_position_bias_mask).
  Tensor Sdpa(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
              const Tensor& position_bias) const {
    Tensor bias = position_bias;
    if (mask.defined()) {
      // Of a static cache, whose later positions are yet to come.
      bias = WhereScalar(mask, position_bias);
    } else if (is_causal_ && q.size(2) > 1) {
      const PositionScope scope(q.runtime());
      const Tensor causal = [&] {
        const Tensor rows = Unsqueeze(Arange(q.runtime(), q.size(2)), 1);
        const Tensor columns = Unsqueeze(Arange(q.runtime(), k.size(2)), 0);
        return View(Compare(rows, columns), {1, 1, q.size(2), k.size(2)});
      }();
      bias = WhereScalar(causal, position_bias);
    }
    Tensor output = ScaledDotProductAttention(q, k, v, bias, {.dropout = dropout_});
    output = Contiguous(Transpose(output, 1, 2));
    return output;
  }

  ModuleId id_;
  size_t index_;
  Linear q_;
  Linear k_;
  Linear v_;
  Linear o_;
  std::optional<Embedding> relative_attention_bias_;
  int64_t heads_;
  bool eager_;
  bool is_decoder_;
  bool is_causal_;
  bool checkpointed_;
  double dropout_;
};

// T5LayerSelfAttention and T5LayerCrossAttention: norm, attention, residual.
class T5AttentionLayer {
 public:
  T5AttentionLayer(const Scope& scope, std::string_view name, const ModelArguments& arguments,
                   bool is_decoder, bool is_causal, size_t index)
      : attention_(scope / name, arguments, is_decoder, is_causal, index),
        norm_(scope / "layer_norm"),
        dropout_(arguments.config.Float("dropout_rate")) {}

  T5AttentionOutput operator()(const Tensor& hidden, const Tensor& mask, const Tensor& encoded,
                               const Tensor& position_bias, const T5Cache& cache) const {
    const Scoped kind(hidden.runtime().kind, Kind::kResidual);
    const Tensor normed = norm_(hidden);
    T5AttentionOutput output = attention_(normed, mask, encoded, position_bias, cache);
    const Tensor dropped = Dropout(output.states, dropout_);
    output.states = Add(hidden, dropped);
    return output;
  }

 private:
  T5Attention attention_;
  T5LayerNorm norm_;
  double dropout_;
};

// The position biases that the first layer makes and the others share.
struct T5Biases {
  Tensor self;
  Tensor cross;
};

class T5Block {
 public:
  T5Block(const Scope& scope, const ModelArguments& arguments, bool is_decoder,
          Activation activation, size_t index)
      : id_(scope.id()),
        self_attention_((scope / "layer")[0], "SelfAttention", arguments, is_decoder, is_decoder,
                        index),
        feed_forward_((scope / "layer")[is_decoder ? 2 : 1], arguments.config, activation) {
    if (is_decoder) {
      cross_attention_.emplace((scope / "layer")[1], "EncDecAttention", arguments, is_decoder,
                               false, index);
    }
  }

  // Returns the hidden states; `biases` become those that the layer used.
  Tensor operator()(const Tensor& input, const Tensor& mask, const Tensor& encoded,
                    T5Biases& biases, const T5Cache& cache) const {
    const InModule in(input.runtime(), id_);
    T5AttentionOutput attention = self_attention_(input, mask, Tensor(), biases.self, cache);
    Tensor hidden = ClampHalf(std::move(attention.states));
    biases.self = std::move(attention.position_bias);
    if (cross_attention_) {
      attention = (*cross_attention_)(hidden, Tensor(), encoded, biases.cross, cache);
      hidden = ClampHalf(std::move(attention.states));
      biases.cross = std::move(attention.position_bias);
    }
    hidden = feed_forward_(hidden);
    return ClampHalf(std::move(hidden));
  }

 private:
  // Clamps infinities of fp16 states; the bound depends on whether there are any.
  static Tensor ClampHalf(Tensor hidden) {
    if (hidden.dtype() != DType::kFloat16) return hidden;
    Runtime& runtime = hidden.runtime();
    Tensor bound;
    {
      const Scoped no_grad(runtime.grad_enabled, false);
      const Tensor magnitude = EmptyLike(hidden);
      const Tensor infinite = CompareScalar(magnitude);
      const Tensor any = Empty(runtime, {}, DType::kBool);
      bound = Empty(runtime, {}, DType::kFloat32);
    }
    return Clamp(hidden);
  }

  ModuleId id_;
  T5AttentionLayer self_attention_;
  std::optional<T5AttentionLayer> cross_attention_;
  T5FeedForward feed_forward_;
};

class T5Stack {
 public:
  T5Stack(const Scope& scope, const ModelArguments& arguments, bool is_decoder,
          Activation activation)
      : id_(scope.id()),
        attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        is_decoder_(is_decoder),
        embed_tokens_(Scope(arguments.weights) / "shared"),
        final_layer_norm_(scope / "final_layer_norm"),
        dropout_(arguments.config.Float("dropout_rate")) {
    const int64_t layers = arguments.config.Int(is_decoder ? "num_decoder_layers" : "num_layers");
    for (int64_t i = 0; i < layers; ++i) {
      blocks_.emplace_back((scope / "block")[i], arguments, is_decoder, activation,
                           static_cast<size_t>(i));
    }
  }

  // `encoded` undefined: the encoder.
  Tensor operator()(const Tensor& input_ids, const Tensor& attention_mask, const Tensor& encoded,
                    const Tensor& encoder_attention_mask, const T5Cache& cache) const {
    Runtime& runtime = input_ids.runtime();
    const InModule in(runtime, id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const Tensor inputs_embeds = embed_tokens_(input_ids);
    Tensor mask;
    if (is_decoder_) {
      mask = CreateCausalMask(attn_, inputs_embeds, attention_mask, Tensor(), std::nullopt, true,
                              cache.past);
      CreateBidirectionalMask(attn_, inputs_embeds, encoder_attention_mask);
    } else {
      mask = CreateBidirectionalMask(attn_, inputs_embeds, attention_mask);
    }
    T5Biases biases;
    Tensor hidden = Dropout(inputs_embeds, dropout_);
    for (const T5Block& block : blocks_) hidden = Run(block, hidden, mask, encoded, biases, cache);
    hidden = final_layer_norm_(hidden);
    hidden = Dropout(hidden, dropout_);
    return hidden;
  }

 private:
  Tensor Run(const T5Block& block, const Tensor& hidden, const Tensor& mask, const Tensor& encoded,
             T5Biases& biases, const T5Cache& cache) const {
    if (checkpoint_ == CheckpointKind::kNone) return block(hidden, mask, encoded, biases, cache);
    // The first run hands its biases on; recomputation makes them anew and drops them. Caches are
    // off under checkpointing.
    const auto produced = std::make_shared<T5Biases>();
    const auto first = std::make_shared<bool>(true);
    const Tensor inputs[] = {hidden, biases.self, encoded, biases.cross};
    Tensor output = Checkpoint(
        checkpoint_,
        [&block, mask, produced, first](std::span<const Tensor> given) {
          T5Biases of_layer{given[1], given[3]};
          Tensor states = block(given[0], mask, given[2], of_layer, T5Cache());
          if (*first) *produced = of_layer;
          return states;
        },
        inputs);
    *first = false;
    biases = std::move(*produced);
    *produced = T5Biases();
    return output;
  }

  ModuleId id_;
  AttnImplementation attn_;
  CheckpointKind checkpoint_;
  bool is_decoder_;
  Embedding embed_tokens_;
  std::vector<T5Block> blocks_;
  T5LayerNorm final_layer_norm_;
  double dropout_;
};

class T5 final : public Model {
 public:
  T5(const ModelArguments& arguments, Activation activation)
      : encoder_(Scope(arguments.weights) / "encoder", arguments, false, activation),
        decoder_(Scope(arguments.weights) / "decoder", arguments, true, activation),
        lm_head_(Scope(arguments.weights) / "lm_head",
                 (Scope(arguments.weights) / "shared").Get("weight")),
        // The decoder's own copy of the config keeps use_cache, whatever Trainer sets.
        uses_cache_(arguments.config.MaybeBool("use_cache").value_or(true) &&
                    arguments.checkpoint == CheckpointKind::kNone),
        scales_outputs_(arguments.config.MaybeBool("scale_decoder_outputs").value_or(false)) {}

  Tensor Encode(const Batch& batch) override {
    return encoder_(batch.input_ids, batch.attention_mask, Tensor(), Tensor(), T5Cache());
  }

  ModelOutput Forward(const Batch& batch) override {
    if (batch.encoder_states.defined()) return Decode(batch);
    ModelOutput output;
    const Tensor encoded = Encode(batch);
    const Tensor decoder_input_ids = ShiftTokensRight(batch.labels);
    const Tensor decoded = decoder_(decoder_input_ids, Tensor(), encoded, batch.attention_mask,
                                    T5Cache{uses_cache_ ? &output.cache : nullptr, nullptr});
    const Scoped kind(decoded.runtime().kind, Kind::kLogitsLoss);
    Tensor sequence_output = decoded;
    if (scales_outputs_) sequence_output = MulScalar(sequence_output);
    output.logits = lm_head_(sequence_output);
    output.loss =
        CrossEntropy(View(output.logits, {-1, output.logits.size(-1)}), View(batch.labels, {-1}));
    output.others = {encoded};
    return output;
  }

 private:
  // A step of generation: input_ids are the decoder's.
  ModelOutput Decode(const Batch& batch) const {
    const Tensor decoded = decoder_(batch.input_ids, Tensor(), batch.encoder_states,
                                    batch.attention_mask, T5Cache{nullptr, batch.past_key_values});
    const Scoped kind(decoded.runtime().kind, Kind::kLogitsLoss);
    Tensor sequence_output = decoded;
    if (scales_outputs_) sequence_output = MulScalar(sequence_output);
    return {Tensor(), lm_head_(sequence_output), {}};
  }

  T5Stack encoder_;
  T5Stack decoder_;
  Linear lm_head_;
  bool uses_cache_;
  bool scales_outputs_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  if (arguments.checkpoint == CheckpointKind::kReentrant) {
    return Error::Unsupported("reentrant checkpointing of " + arguments.config.model_type() +
                              " is not modelled: set use_reentrant to false");
  }
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(arguments.config.String("dense_act_fn")));
  return std::unique_ptr<Model>(std::make_unique<T5>(arguments, activation));
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

extern const Architecture kMt5 = Named("mt5");
extern const Architecture kT5 = Named("t5");

}  // namespace headroom::predict
