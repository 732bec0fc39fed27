// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/bloom/modeling_bloom.py.
#include <tuple>

#include "predict/autograd.h"
#include "predict/kv_cache.h"
#include "predict/models/alibi.h"
#include "predict/models/architectures.h"
#include "predict/models/attention.h"
#include "predict/models/decoder_head.h"
#include "predict/models/layer_outputs.h"

namespace headroom::predict {
namespace {

// dropout_add
Tensor DropoutAdd(const Tensor& x, const Tensor& residual, double probability) {
  Tensor out = Dropout(x, probability);
  out = Add(residual, out);
  return out;
}

// 0.79788456 * x * (1 + 0.044715 * x * x)
Tensor GeluArgument(const Tensor& x) {
  const Tensor scaled = MulScalar(x);
  Tensor polynomial = MulScalar(x);
  polynomial = Mul(polynomial, x);
  polynomial = AddScalar(polynomial);
  return Mul(scaled, polynomial);
}

// bloom_gelu_forward: x * 0.5 * (1.0 + tanh(argument)).
Tensor GeluForward(const Tensor& x) {
  const Tensor half = MulScalar(x);
  Tensor inner = GeluArgument(x);
  inner = Tanh(inner);
  inner = AddScalar(inner);
  return Mul(half, inner);
}

// bloom_gelu_back:
//   0.5 * x * ((1 - t * t) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1 + t), times g.
Tensor GeluBack(const Tensor& g, const Tensor& x) {
  Tensor tanh_out = GeluArgument(x);
  tanh_out = Tanh(tanh_out);
  Tensor ff;
  {
    Tensor product;
    {
      const Tensor half = MulScalar(x);
      {
        Tensor left = Mul(tanh_out, tanh_out);
        left = AddScalar(left);
        Tensor right = MulScalar(x);
        right = Mul(right, x);
        right = AddScalar(right);
        product = Mul(left, right);
      }
      product = Mul(half, product);
    }
    Tensor rest = AddScalar(tanh_out);
    rest = MulScalar(rest);
    ff = Add(product, rest);
  }
  return Mul(ff, g);
}

// GeLUFunction, an autograd.Function: keeps its input alone.
Tensor BloomGelu(const Tensor& x) {
  Runtime& runtime = x.runtime();
  GradRecorder record(runtime, "GeLUFunctionBackward", {x});
  Tensor output;
  {
    const Scoped no_grad(runtime.grad_enabled, false);
    output = GeluForward(x);
  }
  const SavedTensor saved = record.Save(x);
  return record.Finish(std::move(output), [saved](Grads& grads) -> Grads {
    const Tensor input = saved.Unpack();
    return {GeluBack(grads[0], input)};
  });
}

class BloomAttention {
 public:
  BloomAttention(const Scope& scope, const ModelConfig& config, size_t index)
      : id_(scope.id()),
        index_(index),
        query_key_value_(scope / "query_key_value"),
        dense_(scope / "dense"),
        heads_(config.Int("n_head")),
        attention_dropout_(config.Float("attention_dropout")),
        hidden_dropout_(config.Float("hidden_dropout")) {}

  AttentionOutput operator()(const Tensor& hidden, const Tensor& residual, const Tensor& alibi,
                             const Tensor& mask, KeyValueCache* past) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    const int64_t batch = hidden.size(0);
    const int64_t sequence = hidden.size(1);
    const int64_t head_dim = hidden.size(2) / heads_;
    const Tensor fused = query_key_value_(hidden);
    Tensor q;
    Tensor k;
    Tensor v;
    {
      const Tensor by_head = View(fused, {batch, sequence, heads_, 3, head_dim});
      q = Transpose(Select(by_head, 3, 0), 1, 2);
      k = Transpose(Select(by_head, 3, 1), 1, 2);
      v = Transpose(Select(by_head, 3, 2), 1, 2);
    }
    if (past != nullptr) std::tie(k, v) = Cached(*past, index_, k, v);
    q = Reshape(q, {batch * heads_, -1, head_dim});
    k = Transpose(Reshape(k, {batch * heads_, -1, head_dim}), -1, -2);
    v = Reshape(v, {batch * heads_, -1, head_dim});

    Tensor scores;
    Tensor weights;
    Tensor probabilities;
    {
      const Scoped of_scores(hidden.runtime().kind, Kind::kAttentionScores);
      scores = Baddbmm(alibi, q, k);
      weights = View(scores, {batch, heads_, sequence, -1});
      if (mask.defined()) weights = Add(weights, mask);
      probabilities = Softmax(weights, DType::kFloat32);
      probabilities = To(probabilities, q.dtype());
      probabilities = Dropout(probabilities, attention_dropout_);
    }
    const Tensor flat = View(probabilities, {batch * heads_, sequence, -1});
    Tensor context = Bmm(flat, v);
    context = Permute(View(context, {batch, heads_, sequence, head_dim}), {0, 2, 1, 3});
    context = Reshape(context, {batch, sequence, heads_ * head_dim});
    Tensor output = dense_(context);
    output = DropoutAdd(output, residual, hidden_dropout_);
    return {output, probabilities};
  }

 private:
  ModuleId id_;
  size_t index_;
  Linear query_key_value_;
  Linear dense_;
  int64_t heads_;
  double attention_dropout_;
  double hidden_dropout_;
};

class BloomMlp {
 public:
  BloomMlp(const Scope& scope, const ModelConfig& config)
      : id_(scope.id()),
        dense_h_to_4h_(scope / "dense_h_to_4h"),
        dense_4h_to_h_(scope / "dense_4h_to_h"),
        dropout_(config.Float("hidden_dropout")) {}

  Tensor operator()(const Tensor& states, const Tensor& residual) const {
    const InModule in(states.runtime(), id_);
    const Scoped kind(states.runtime().kind, Kind::kMlp);
    const Tensor hidden = BloomGelu(dense_h_to_4h_(states));
    const Tensor intermediate = dense_4h_to_h_(hidden);
    return DropoutAdd(intermediate, residual, dropout_);
  }

 private:
  ModuleId id_;
  Linear dense_h_to_4h_;
  Linear dense_4h_to_h_;
  double dropout_;
};

class BloomBlock {
 public:
  BloomBlock(const Scope& scope, const ModelConfig& config, size_t index)
      : id_(scope.id()),
        input_layernorm_(scope / "input_layernorm"),
        self_attention_(scope / "self_attention", config, index),
        post_attention_layernorm_(scope / "post_attention_layernorm"),
        mlp_(scope / "mlp", config),
        residual_after_norm_(config.Bool("apply_residual_connection_post_layernorm")) {}

  AttentionOutput operator()(const Tensor& hidden, const Tensor& alibi, const Tensor& mask,
                             KeyValueCache* past) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kResidual);
    Tensor normed = input_layernorm_(hidden);
    Tensor residual = residual_after_norm_ ? normed : hidden;
    const AttentionOutput attention = self_attention_(normed, residual, alibi, mask, past);
    normed = post_attention_layernorm_(attention.states);
    residual = residual_after_norm_ ? normed : attention.states;
    return {mlp_(normed, residual), attention.weights};
  }

 private:
  ModuleId id_;
  LayerNorm input_layernorm_;
  BloomAttention self_attention_;
  LayerNorm post_attention_layernorm_;
  BloomMlp mlp_;
  bool residual_after_norm_;
};

class Bloom final : public Model {
 public:
  explicit Bloom(const ModelArguments& arguments)
      : attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        heads_(arguments.config.Int("n_head")),
        root_id_(Root(arguments).id()),
        word_embeddings_(Root(arguments) / "word_embeddings"),
        word_embeddings_layernorm_(Root(arguments) / "word_embeddings_layernorm"),
        ln_f_(Root(arguments) / "ln_f"),
        head_(arguments, word_embeddings_.weight(),
              {.classifier_dropout = DecoderClassifierDropout(arguments.config)}) {
    const Scope blocks = Root(arguments) / "h";
    for (int64_t i = 0; i < arguments.config.Int("n_layer"); ++i) {
      blocks_.emplace_back(blocks[i], arguments.config, static_cast<size_t>(i));
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

  // BloomModel.forward; its locals live to its end.
  Tensor Transformer(const Batch& batch) const {
    Runtime& runtime = batch.input_ids.runtime();
    const InModule in(runtime, root_id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const Tensor inputs_embeds = word_embeddings_(batch.input_ids);
    Tensor hidden = word_embeddings_layernorm_(inputs_embeds);
    const Tensor attention_mask = batch.attention_mask.defined()
                                      ? batch.attention_mask
                                      : Full(runtime, batch.input_ids.shape(), DType::kFloat32);
    const Tensor alibi = BuildAlibi(attention_mask, heads_, hidden.dtype(), DType::kFloat32);
    const Tensor mask = CreateCausalMask(attn_, inputs_embeds, attention_mask, Tensor(),
                                         std::nullopt, true, batch.past_key_values);
    const KeptWeights kept;
    for (const BloomBlock& block : blocks_) {
      hidden = Checkpoint(
          checkpoint_,
          [&block, alibi, mask, slot = kept.slot(), past = batch.past_key_values](const Tensor& x) {
            return KeptWeights::Keep(slot, block(x, alibi, mask, past));
          },
          hidden);
    }
    hidden = ln_f_(hidden);
    return hidden;
  }

  AttnImplementation attn_;
  CheckpointKind checkpoint_;
  int64_t heads_;
  ModuleId root_id_;
  Embedding word_embeddings_;
  LayerNorm word_embeddings_layernorm_;
  std::vector<BloomBlock> blocks_;
  LayerNorm ln_f_;
  DecoderHead head_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  if (arguments.config.Int("pretraining_tp") > 1 && arguments.config.Bool("slow_but_exact")) {
    return Error::Unsupported("bloom with slow_but_exact is not modelled");
  }
  return std::unique_ptr<Model>(std::make_unique<Bloom>(arguments));
}

}  // namespace

extern const Architecture kBloom = {
    .model_type = "bloom",
    .supports_sdpa = false,
    .accepts_loss_kwargs = [](Task) { return true; },
    .loss_shifts_labels = &ShiftsCausalLabels,
    .make = &Make,
    .caches = true,
    .takes_position_ids = false,
};

}  // namespace headroom::predict
