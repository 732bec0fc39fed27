// SPDX-License-Identifier: Apache-2.0
//
// The layers of BART's family: transformers 5.17.0, models/{bart,mbart,marian,pegasus,whisper}/
// modeling_*.py. One architecture in five files, which differ in where they normalise, how they
// number positions and where they scale the queries:
//
//   BartEncoderLayer layer(scope / "layers" / "0", arguments, activation);
//   hidden = layer(hidden, mask);
#pragma once

#include <utility>

#include "predict/kv_cache.h"
#include "predict/models/architectures.h"
#include "predict/models/attention.h"
#include "predict/models/seq2seq.h"

namespace headroom::predict {

// In what they differ.
struct BartForm {
  bool norm_first;         // layers normalise their input; else their output
  bool learned_positions;  // else sinusoidal, frozen
  bool shift_around_eos;
  bool scales_queries;  // before attention, and stores the heads apart; else in attention
};

inline BartForm BartFormOf(const ModelConfig& config) {
  const std::string& type = config.model_type();
  return {.norm_first = type == "mbart" || type == "pegasus" || type == "whisper",
          .learned_positions = type == "bart" || type == "mbart",
          .shift_around_eos = type == "mbart",
          .scales_queries = type == "whisper"};
}

inline Status CheckLayerdrop(const ModelConfig& config) {
  for (const char* name : {"encoder_layerdrop", "decoder_layerdrop"}) {
    if (config.MaybeFloat(name).value_or(0) > 0) {
      return Error::Unsupported(
          std::string(name) +
          " above 0 skips layers at random, which is not modelled: set it to 0");
    }
  }
  return {};
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
        scales_queries_(BartFormOf(arguments.config).scales_queries),
        options_{.dropout = arguments.config.Float("attention_dropout"), .is_causal = is_causal} {}

  // `current` is what keys and values are made of: the encoder's output, or undefined, which is
  // `hidden` itself. `past` is the cache of that kind of attention, or null.
  AttentionOutput operator()(const Tensor& hidden, const Tensor& current, const Tensor& mask,
                             KeyValueCache* past) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    const Tensor q = Queries(hidden);
    auto [k, v] = KeysAndValues(current.defined() ? current : hidden, current.defined(), past);
    AttentionOutput output;
    if (eager_) {
      output = AutocastAttentionForward(q, k, v, mask, options_.dropout);
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

  Tensor Queries(const Tensor& hidden) const {
    if (!scales_queries_) return Heads(q_proj_(hidden));
    Tensor q = q_proj_(hidden);
    q = MulScalar(q);
    return Contiguous(Heads(q));
  }

  std::pair<Tensor, Tensor> KeysAndValues(const Tensor& current, bool crosses,
                                          KeyValueCache* past) const {
    const auto project = [&] {
      if (scales_queries_) {
        const Tensor k = Contiguous(Heads(k_proj_(current)));
        return std::pair(k, Contiguous(Heads(v_proj_(current))));
      }
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

  ModuleId id_;
  size_t index_;
  Linear k_proj_;
  Linear v_proj_;
  Linear q_proj_;
  Linear out_proj_;
  int64_t heads_;
  bool eager_;
  bool scales_queries_;
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
        norm_first_(BartFormOf(config).norm_first),
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
        norm_first_(BartFormOf(arguments.config).norm_first),
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
        norm_first_(BartFormOf(arguments.config).norm_first) {}

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

}  // namespace headroom::predict
