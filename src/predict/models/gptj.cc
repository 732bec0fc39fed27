// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/gptj/modeling_gptj.py and models/codegen/modeling_codegen.py, which
// differ in how queries, keys and values are projected, in the type of the rotation and in whether
// the scores are scaled before they are masked.
#include <tuple>

#include "predict/kv_cache.h"
#include "predict/models/architectures.h"
#include "predict/models/attention.h"
#include "predict/models/decoder_head.h"
#include "predict/models/layer_outputs.h"

namespace headroom::predict {
namespace {

enum class Family { kGptj, kCodegen };

Tensor Joined(const Tensor& a, const Tensor& b) {
  const Tensor both[] = {a, b};
  return Cat(both, -1);
}

// rotate_every_two. Of every second element and of half the elements the memory is the same.
Tensor RotateEveryTwo(const Tensor& x) {
  const int64_t half = x.size(-1) / 2;
  const Tensor x1 = Slice(x, -1, 0, half);
  const Tensor x2 = Slice(x, -1, half, 2 * half);
  const Tensor stacked = Joined(Unsqueeze(Neg(x2), -1), Unsqueeze(x1, -1));
  return View(stacked, x.shape());
}

// apply_rotary_pos_emb: sines and cosines [1, sequence, rotary_dim / 2], doubled for each use.
Tensor ApplyRotaryEveryTwo(const Tensor& x, const Tensor& sin_table, const Tensor& cos_table) {
  const Tensor sin = RepeatInterleave(Unsqueeze(sin_table, 2), 2, 3);
  const Tensor cos = RepeatInterleave(Unsqueeze(cos_table, 2), 2, 3);
  const Tensor straight = Mul(x, cos);
  Tensor turned = RotateEveryTwo(x);
  turned = Mul(turned, sin);
  return Add(straight, turned);
}

class GptjAttention {
 public:
  GptjAttention(const Scope& scope, const ModelConfig& config, Family family, size_t index)
      : id_(scope.id()),
        index_(index),
        family_(family),
        out_proj_(scope / "out_proj"),
        embed_positions_(scope.Get("embed_positions")),
        heads_(config.Int("num_attention_heads")),
        rotary_dim_(config.Int("rotary_dim")),
        attn_dropout_(config.Float("attn_pdrop")),
        resid_dropout_(config.Float("resid_pdrop")) {
    if (family == Family::kCodegen) {
      qkv_proj_.emplace(scope / "qkv_proj");
    } else {
      q_proj_.emplace(scope / "q_proj");
      k_proj_.emplace(scope / "k_proj");
      v_proj_.emplace(scope / "v_proj");
    }
  }

  AttentionOutput operator()(const Tensor& hidden, const Tensor& mask, const Tensor& position_ids,
                             KeyValueCache* past) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    Projected projected = family_ == Family::kCodegen ? Fused(hidden) : Separate(hidden);
    Tensor q = std::move(projected.q);
    Tensor k = std::move(projected.k);
    Tensor v = Permute(projected.v, {0, 2, 1, 3});
    const Positions positions = EmbedPositions(position_ids, k.dtype());
    const std::vector<Tensor> tables = Split(positions.sines, positions.sines.size(-1) / 2, -1);
    const int64_t width = k.size(-1);
    Tensor k_turned = Slice(k, -1, 0, rotary_dim_);
    const Tensor k_pass = Slice(k, -1, rotary_dim_, width);
    Tensor q_turned = Slice(q, -1, 0, rotary_dim_);
    const Tensor q_pass = Slice(q, -1, rotary_dim_, width);
    k_turned = ApplyRotaryEveryTwo(k_turned, tables[0], tables[1]);
    q_turned = ApplyRotaryEveryTwo(q_turned, tables[0], tables[1]);
    k = Joined(k_turned, k_pass);
    q = Joined(q_turned, q_pass);
    k = Permute(k, {0, 2, 1, 3});
    q = Permute(q, {0, 2, 1, 3});
    // CodeGen turns its keys in fp32 and caches them in the model's type.
    if (past != nullptr) std::tie(k, v) = Cached(*past, index_, To(k, hidden.dtype()), v);

    AttentionOutput output = Attend(q, k, v, mask);
    Tensor merged = Contiguous(Permute(output.states, {0, 2, 1, 3}));
    merged = View(merged, {hidden.size(0), hidden.size(1), -1});
    output.states = std::move(merged);
    output.states = out_proj_(output.states);
    output.states = Dropout(output.states, resid_dropout_);
    return output;
  }

 private:
  // [batch, sequence, heads, head_dim], and what the fused form's frame holds besides.
  struct Projected {
    Tensor q;
    Tensor k;
    Tensor v;
    Tensor fused;
  };

  // Sines and cosines at the positions, and what the frame holds of their making.
  struct Positions {
    Tensor sines;
    Tensor table;
    Tensor indices;
  };

  Tensor Heads(const Tensor& x) const {
    return View(x, {x.size(0), x.size(1), heads_, x.size(2) / heads_});
  }

  Projected Separate(const Tensor& hidden) const {
    Projected projected;
    projected.q = (*q_proj_)(hidden);
    projected.k = (*k_proj_)(hidden);
    projected.v = (*v_proj_)(hidden);
    projected.q = Heads(projected.q);
    projected.k = Heads(projected.k);
    projected.v = Heads(projected.v);
    return projected;
  }

  // CodeGen keeps the layout of four TPU cores: [query, value, key] for each.
  Projected Fused(const Tensor& hidden) const {
    constexpr int64_t kCores = 4;  // mp_num
    Projected projected;
    projected.fused = (*qkv_proj_)(hidden);
    const Shape by_core = {hidden.size(0), hidden.size(1), kCores, -1};
    const Tensor by_cores = Reshape(projected.fused, by_core);
    const int64_t local = hidden.size(2) / kCores;
    const std::vector<Tensor> parts = Split(by_cores, local, -1);
    const int64_t head_dim = hidden.size(2) / heads_;
    const Shape by_head = {hidden.size(0), hidden.size(1), kCores, heads_ / kCores, head_dim};
    const Shape flat = {hidden.size(0), hidden.size(1), -1, head_dim};
    projected.q = Reshape(Reshape(parts[0], by_head), flat);
    projected.k = Reshape(Reshape(parts[2], by_head), flat);
    projected.v = Reshape(Reshape(parts[1], by_head), flat);
    return projected;
  }

  // GPT-J gathers from a copy of the table and casts; CodeGen indexes the table itself.
  Positions EmbedPositions(const Tensor& position_ids, DType dtype) const {
    Runtime& runtime = position_ids.runtime();
    const Scoped kind(runtime.kind, Kind::kPosition);
    const int64_t width = embed_positions_.size(-1);
    const Shape shape = {position_ids.size(0), position_ids.size(1), width};
    Positions positions;
    if (family_ == Family::kCodegen) {
      positions.sines = Empty(runtime, shape, DType::kFloat32);
      return positions;
    }
    positions.table = Empty(runtime, {shape[0], embed_positions_.size(0), width}, DType::kFloat32);
    positions.indices = Empty(runtime, shape, DType::kInt64);
    positions.sines = To(Empty(runtime, shape, DType::kFloat32), dtype);
    return positions;
  }

  // _attn: scores of fp32 queries and keys, which autocast computes in its own type all the same.
  AttentionOutput Attend(const Tensor& given_q, const Tensor& given_k, const Tensor& v,
                         const Tensor& mask) const {
    const Scoped kind(v.runtime().kind, Kind::kAttentionScores);
    const Tensor q = To(given_q, DType::kFloat32);
    const Tensor k = To(given_k, DType::kFloat32);
    Tensor weights = Matmul(q, Transpose(k, -1, -2));
    if (family_ == Family::kGptj) weights = DivScalar(weights);
    if (mask.defined()) weights = Add(weights, mask);
    if (family_ == Family::kCodegen) weights = DivScalar(weights);
    weights = Softmax(weights);
    weights = To(weights, v.dtype());
    weights = Dropout(weights, attn_dropout_);
    return {Matmul(weights, v), weights};
  }

  ModuleId id_;
  size_t index_;
  Family family_;
  std::optional<Linear> q_proj_;
  std::optional<Linear> k_proj_;
  std::optional<Linear> v_proj_;
  std::optional<Linear> qkv_proj_;
  Linear out_proj_;
  Tensor embed_positions_;
  int64_t heads_;
  int64_t rotary_dim_;
  double attn_dropout_;
  double resid_dropout_;
};

class GptjMlp {
 public:
  GptjMlp(const Scope& scope, const ModelConfig& config, Activation activation)
      : id_(scope.id()),
        fc_in_(scope / "fc_in"),
        fc_out_(scope / "fc_out"),
        activation_(activation),
        dropout_(config.Float("resid_pdrop")) {}

  Tensor operator()(const Tensor& states) const {
    const InModule in(states.runtime(), id_);
    const Scoped kind(states.runtime().kind, Kind::kMlp);
    Tensor hidden = fc_in_(states);
    hidden = activation_(hidden);
    hidden = fc_out_(hidden);
    hidden = Dropout(hidden, dropout_);
    return hidden;
  }

 private:
  ModuleId id_;
  Linear fc_in_;
  Linear fc_out_;
  Activation activation_;
  double dropout_;
};

class GptjBlock {
 public:
  GptjBlock(const Scope& scope, const ModelConfig& config, Family family, Activation activation,
            size_t index)
      : id_(scope.id()),
        ln_1_(scope / "ln_1"),
        attn_(scope / "attn", config, family, index),
        mlp_(scope / "mlp", config, activation) {}

  AttentionOutput operator()(const Tensor& input, const Tensor& mask, const Tensor& position_ids,
                             KeyValueCache* past) const {
    const InModule in(input.runtime(), id_);
    const Scoped kind(input.runtime().kind, Kind::kResidual);
    Tensor hidden = ln_1_(input);
    const AttentionOutput attention = attn_(hidden, mask, position_ids, past);
    const Tensor feed_forward = mlp_(hidden);
    {
      const Tensor sum = Add(attention.states, feed_forward);
      hidden = Add(sum, input);
    }
    return {hidden, attention.weights};
  }

 private:
  ModuleId id_;
  LayerNorm ln_1_;
  GptjAttention attn_;
  GptjMlp mlp_;
};

class Gptj final : public Model {
 public:
  Gptj(const ModelArguments& arguments, Family family, Activation activation)
      : attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        root_id_(Root(arguments).id()),
        wte_(Root(arguments) / "wte"),
        embd_dropout_(arguments.config.Float("embd_pdrop")),
        ln_f_(Root(arguments) / "ln_f"),
        head_(arguments, wte_.weight(), {}) {
    const Scope blocks = Root(arguments) / "h";
    for (int64_t i = 0; i < arguments.config.Int("n_layer"); ++i) {
      blocks_.emplace_back(blocks[i], arguments.config, family, activation, static_cast<size_t>(i));
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

  // GPTJModel.forward; inputs_embeds lives to its end.
  Tensor Transformer(const Batch& batch) const {
    Runtime& runtime = batch.input_ids.runtime();
    const InModule in(runtime, root_id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const Tensor inputs_embeds = wte_(batch.input_ids);
    const Tensor position_ids = PositionIdsOf(batch, inputs_embeds);
    const Tensor mask = CreateCausalMask(attn_, inputs_embeds, batch.attention_mask, position_ids,
                                         std::nullopt, true, batch.past_key_values);
    Tensor hidden = Dropout(inputs_embeds, embd_dropout_);
    const KeptWeights kept;
    for (const GptjBlock& block : blocks_) {
      hidden = Checkpoint(
          checkpoint_,
          [&block, mask, position_ids, slot = kept.slot(),
           past = batch.past_key_values](const Tensor& x) {
            return KeptWeights::Keep(slot, block(x, mask, position_ids, past));
          },
          hidden);
    }
    hidden = ln_f_(hidden);
    return View(hidden, hidden.shape());
  }

  AttnImplementation attn_;
  CheckpointKind checkpoint_;
  ModuleId root_id_;
  Embedding wte_;
  double embd_dropout_;
  std::vector<GptjBlock> blocks_;
  LayerNorm ln_f_;
  DecoderHead head_;
};

Result<std::unique_ptr<Model>> MakeOf(const ModelArguments& arguments, Family family) {
  const ModelConfig& config = arguments.config;
  if (arguments.attn == AttnImplementation::kFlashAttention2) {
    return Error::Unsupported(config.model_type() + " with flash_attention_2 is not modelled");
  }
  const int64_t heads = config.Int("num_attention_heads");
  const int64_t head_dim = config.Int("hidden_size") / heads;
  const int64_t rotary_dim = config.Int("rotary_dim");
  if (rotary_dim <= 0 || rotary_dim > head_dim || rotary_dim % 2 != 0) {
    return Error::BadInput("rotary_dim " + std::to_string(rotary_dim) +
                           " must be even and at most the head size " + std::to_string(head_dim) +
                           ": correct it in config.json");
  }
  if (family == Family::kCodegen && heads % 4 != 0) {
    return Error::BadInput("codegen needs a multiple of 4 attention heads, not " +
                           std::to_string(heads));
  }
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(config.String("activation_function")));
  return std::unique_ptr<Model>(std::make_unique<Gptj>(arguments, family, activation));
}

Result<std::unique_ptr<Model>> MakeGptj(const ModelArguments& arguments) {
  return MakeOf(arguments, Family::kGptj);
}
Result<std::unique_ptr<Model>> MakeCodegen(const ModelArguments& arguments) {
  return MakeOf(arguments, Family::kCodegen);
}

}  // namespace

extern const Architecture kGptj = {
    .model_type = "gptj",
    .supports_sdpa = false,
    .accepts_loss_kwargs = [](Task) { return true; },
    .loss_shifts_labels = &ShiftsCausalLabels,
    .make = &MakeGptj,
    .caches = true,
};

extern const Architecture kCodegen = {
    .model_type = "codegen",
    .supports_sdpa = false,
    .accepts_loss_kwargs = [](Task) { return true; },
    .loss_shifts_labels = &ShiftsCausalLabels,
    .make = &MakeCodegen,
    .caches = true,
};

}  // namespace headroom::predict
