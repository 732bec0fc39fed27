// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0: models/{llama,gemma,gemma3,olmo,olmo2,cohere,phi,phi3,qwen3,stablelm}/
// modeling_*.py.
#include "predict/models/decoder_parts.h"

#include <string>
#include <tuple>
#include <utility>

#include "predict/kv_cache.h"

namespace headroom::predict {
namespace {

using Layout = DecoderLayout;

// x[..., begin:end]: Python's indexing answers the whole range with an alias of the tensor.
Tensor LastDim(const Tensor& x, int64_t begin, int64_t end) {
  if (begin == 0 && end == x.size(-1)) return View(x, x.shape());
  return Slice(x, -1, begin, end);
}

Tensor JoinLast(const Tensor& a, const Tensor& b) {
  const Tensor both[] = {a, b};
  return Cat(both, -1);
}

// apply_rotary_pos_emb of Phi 3: of `x`, the part that turns is joined with the rest.
Tensor RotateAndJoin(const Tensor& part, const Tensor& rest, const Tensor& cos, const Tensor& sin) {
  Tensor rotated;
  {
    const Tensor straight = Mul(part, cos);
    Tensor turned = RotateHalf(part);
    turned = Mul(turned, sin);
    rotated = Add(straight, turned);
  }
  return JoinLast(rotated, rest);
}

std::pair<Tensor, Tensor> RotatePhi3(const Tensor& q, const Tensor& k,
                                     const PositionEmbeddings& at) {
  const Tensor cos = Unsqueeze(at.cos, 1);
  const Tensor sin = Unsqueeze(at.sin, 1);
  const int64_t rotary_dim = cos.size(-1);
  const Tensor q_rot = LastDim(q, 0, rotary_dim);
  const Tensor q_pass = LastDim(q, rotary_dim, q.size(-1));
  const Tensor k_rot = LastDim(k, 0, rotary_dim);
  const Tensor k_pass = LastDim(k, rotary_dim, k.size(-1));
  Tensor q_embed = RotateAndJoin(q_rot, q_pass, cos, sin);
  return {q_embed, RotateAndJoin(k_rot, k_pass, cos, sin)};
}

// Cohere's: in fp32, and back.
std::pair<Tensor, Tensor> RotateInFloat(const Tensor& given_q, const Tensor& given_k,
                                        const PositionEmbeddings& at) {
  const DType dtype = given_q.dtype();
  const Tensor q = To(given_q, DType::kFloat32);
  const Tensor k = To(given_k, DType::kFloat32);
  const auto [q_embed, k_embed] = ApplyRotary(q, k, at.cos, at.sin);
  Tensor cast_q = To(q_embed, dtype);
  return {cast_q, To(k_embed, dtype)};
}

// StableLmLayerNormPerHead: every head through a norm of its own.
Tensor NormPerHead(const std::vector<LayerNorm>& norms, const Tensor& x) {
  const std::vector<Tensor> heads = Split(x, 1, 1);
  std::vector<Tensor> normed;
  for (size_t head = 0; head < norms.size(); ++head) normed.push_back(norms[head](heads[head]));
  return Cat(normed, 1);
}

std::vector<LayerNorm> HeadNorms(const Scope& scope, int64_t heads) {
  std::vector<LayerNorm> norms;
  for (int64_t head = 0; head < heads; ++head) norms.emplace_back((scope / "norms")[head]);
  return norms;
}

}  // namespace

// ---- Norms ----

Tensor DecoderNorm::operator()(const Tensor& x) const {
  const InModule in(x.runtime(), id_);
  const Scoped kind(x.runtime().kind, Kind::kNorm);
  switch (kind_) {
    case Layout::Norm::kRms:
    case Layout::Norm::kRmsInFp32:
      return Rms(x);
    case Layout::Norm::kRmsPlusOne:
      return RmsPlusOne(x);
    case Layout::Norm::kLayerNorm:
      return LayerNormOp(x, weight_, bias_);
    case Layout::Norm::kCohere:
      return Cohere(x);
    case Layout::Norm::kLayerNormOfNothing:
      break;
  }
  Tensor normed;
  {
    const Tensor hidden = To(x, DType::kFloat32);
    normed = LayerNormOp(hidden, Tensor(), Tensor());
  }
  return To(normed, x.dtype());
}

Tensor DecoderNorm::Rms(const Tensor& x) const {
  Tensor hidden = To(x, DType::kFloat32);
  Tensor variance;
  {
    const Tensor squares = Pow(hidden, 2);
    variance = Mean(squares, -1, true);
  }
  {
    Tensor scale = AddScalar(variance);
    scale = Rsqrt(scale);
    hidden = Mul(hidden, scale);
  }
  if (kind_ == Layout::Norm::kRms) return Mul(weight_, To(hidden, x.dtype()));
  const Tensor weighted = Mul(weight_, hidden);
  return To(weighted, x.dtype());
}

Tensor DecoderNorm::RmsPlusOne(const Tensor& x) const {
  Tensor output;
  {
    const Tensor hidden = To(x, DType::kFloat32);
    Tensor scale;
    {
      const Tensor squares = Pow(hidden, 2);
      scale = Mean(squares, -1, true);
    }
    scale = AddScalar(scale);
    scale = Rsqrt(scale);
    output = Mul(hidden, scale);
  }
  {
    Tensor weight = To(weight_, DType::kFloat32);
    weight = AddScalar(weight);
    output = Mul(output, weight);
  }
  return To(output, x.dtype());
}

Tensor DecoderNorm::Cohere(const Tensor& x) const {
  Tensor hidden = To(x, DType::kFloat32);
  const Tensor mean = Mean(hidden, -1, true);
  Tensor variance;
  {
    Tensor squares = Sub(hidden, mean);
    squares = Pow(squares, 2);
    variance = Mean(squares, -1, true);
  }
  {
    const Tensor centred = Sub(hidden, mean);
    Tensor scale = AddScalar(variance);
    scale = Rsqrt(scale);
    hidden = Mul(centred, scale);
  }
  {
    const Tensor weight = To(weight_, DType::kFloat32);
    hidden = Mul(weight, hidden);
  }
  return To(hidden, x.dtype());
}

// ---- Attention ----

DecoderAttention::DecoderAttention(const Scope& scope, const ModelArguments& arguments,
                                   const DecoderLayout& layout, const DecoderOptions& options,
                                   int64_t index, bool rotates)
    : id_(scope.id()),
      index_(static_cast<size_t>(index)),
      qk_norm_(layout.qk_norm),
      order_(options.projections),
      rotary_(options.rotary),
      rotates_(rotates),
      eager_(arguments.attn == AttnImplementation::kEager),
      heads_(layout.heads),
      kv_heads_(layout.kv_heads),
      head_dim_(layout.head_dim),
      rotary_dim_(layout.rotary_dim),
      inner_dropout_(options.inner_dropout),
      options_{.dropout = arguments.config.MaybeFloat("attention_dropout").value_or(0),
               .is_causal = true,
               .groups = layout.heads / layout.kv_heads,
               .softcap = options.caps_attention},
      out_(scope / layout.out_name) {
  if (layout.fused_qkv) {
    projections_.emplace_back(scope / "qkv_proj");
  } else {
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) projections_.emplace_back(scope / name);
  }
  if (qk_norm_ == Layout::QkNorm::kNone) return;
  if (qk_norm_ == Layout::QkNorm::kPerHead) {
    q_head_norms_ = HeadNorms(scope / "q_layernorm", heads_);
    k_head_norms_ = HeadNorms(scope / "k_layernorm", kv_heads_);
    return;
  }
  const std::string suffix = layout.norm == Layout::Norm::kLayerNorm ? "_layernorm" : "_norm";
  for (const char* name : {"q", "k"}) qk_norms_.emplace_back(scope / (name + suffix), layout.norm);
}

Tensor DecoderAttention::SplitHeads(const Tensor& x) const {
  return View(x, {x.size(0), x.size(1), -1, head_dim_});
}

DecoderAttention::Heads DecoderAttention::ProjectFused(const Tensor& hidden) const {
  const Tensor qkv = projections_[0](hidden);
  const int64_t q_end = heads_ * head_dim_;
  const int64_t k_end = q_end + kv_heads_ * head_dim_;
  Heads heads{Slice(qkv, -1, 0, q_end),
              Slice(qkv, -1, q_end, k_end),
              Slice(qkv, -1, k_end, qkv.size(-1)),
              {qkv}};
  for (Tensor* x : {&heads.q, &heads.k, &heads.v}) *x = Transpose(SplitHeads(*x), 1, 2);
  return heads;
}

DecoderAttention::Heads DecoderAttention::ProjectOneByOne(const Tensor& hidden) const {
  const auto project = [&](size_t i) {
    const Tensor flat = projections_[i](hidden);
    Tensor split = SplitHeads(flat);
    if (qk_norm_ == Layout::QkNorm::kHead && i < 2) split = qk_norms_[i](split);
    return Transpose(split, 1, 2);
  };
  Heads heads;
  heads.q = project(0);
  heads.k = project(1);
  heads.v = project(2);
  return heads;
}

DecoderAttention::Heads DecoderAttention::ProjectFirst(const Tensor& hidden) const {
  const auto project = [&](size_t i) {
    const Tensor flat = projections_[i](hidden);
    return qk_norm_ == Layout::QkNorm::kWhole && i < 2 ? qk_norms_[i](flat) : flat;
  };
  Heads heads;
  heads.q = project(0);
  heads.k = project(1);
  heads.v = project(2);
  for (Tensor* x : {&heads.q, &heads.k, &heads.v}) *x = Transpose(SplitHeads(*x), 1, 2);
  return heads;
}

DecoderAttention::Heads DecoderAttention::ProjectViewed(const Tensor& hidden) const {
  Heads heads;
  heads.q = SplitHeads(projections_[0](hidden));
  heads.k = SplitHeads(projections_[1](hidden));
  heads.v = SplitHeads(projections_[2](hidden));
  if (qk_norm_ == Layout::QkNorm::kCohere) {
    heads.q = qk_norms_[0](heads.q);
    heads.k = qk_norms_[1](heads.k);
  }
  for (Tensor* x : {&heads.q, &heads.k, &heads.v}) *x = Transpose(*x, 1, 2);
  return heads;
}

DecoderAttention::Heads DecoderAttention::Project(const Tensor& hidden) const {
  if (projections_.size() == 1) return ProjectFused(hidden);
  switch (order_) {
    case DecoderOptions::Projections::kFirst:
      return ProjectFirst(hidden);
    case DecoderOptions::Projections::kViewed:
      return ProjectViewed(hidden);
    case DecoderOptions::Projections::kOneByOne:
      break;
  }
  return ProjectOneByOne(hidden);
}

void DecoderAttention::NormMoved(Heads& heads) const {
  if (qk_norm_ == Layout::QkNorm::kHeadMoved) {
    heads.q = qk_norms_[0](heads.q);
    heads.k = qk_norms_[1](heads.k);
  } else if (qk_norm_ == Layout::QkNorm::kPerHead) {
    heads.q = NormPerHead(q_head_norms_, heads.q);
    heads.k = NormPerHead(k_head_norms_, heads.k);
  }
}

void DecoderAttention::Rotate(Heads& heads, const PositionEmbeddings& at) const {
  switch (rotary_) {
    case DecoderOptions::Rotary::kWholeHead:
      std::tie(heads.q, heads.k) = ApplyRotary(heads.q, heads.k, at.cos, at.sin);
      return;
    case DecoderOptions::Rotary::kPartInside:
      std::tie(heads.q, heads.k) = RotatePhi3(heads.q, heads.k, at);
      return;
    case DecoderOptions::Rotary::kInFloat: {
      const DType dtype = heads.q.dtype();
      const auto [q_embed, k_embed] = ApplyRotary(heads.q, heads.k, at.cos, at.sin);
      Tensor q = To(q_embed, dtype);
      heads.k = To(k_embed, dtype);
      heads.q = std::move(q);
      return;
    }
    case DecoderOptions::Rotary::kThroughFloat:
      std::tie(heads.q, heads.k) = RotateInFloat(heads.q, heads.k, at);
      return;
    case DecoderOptions::Rotary::kPart:
      break;
  }
  Tensor q_rot = LastDim(heads.q, 0, rotary_dim_);
  const Tensor q_pass = LastDim(heads.q, rotary_dim_, head_dim_);
  Tensor k_rot = LastDim(heads.k, 0, rotary_dim_);
  const Tensor k_pass = LastDim(heads.k, rotary_dim_, head_dim_);
  std::tie(q_rot, k_rot) = ApplyRotary(q_rot, k_rot, at.cos, at.sin);
  heads.q = JoinLast(q_rot, q_pass);
  heads.k = JoinLast(k_rot, k_pass);
  heads.frame = {q_rot, q_pass, k_rot, k_pass};
}

AttentionOutput DecoderAttention::operator()(const Tensor& hidden,
                                             const PositionEmbeddings& positions,
                                             const Tensor& mask, KeyValueCache* past) const {
  const InModule in(hidden.runtime(), id_);
  const Scoped kind(hidden.runtime().kind, Kind::kAttention);
  Heads heads = Project(hidden);
  NormMoved(heads);
  if (rotates_) Rotate(heads, positions);
  if (past != nullptr) std::tie(heads.k, heads.v) = Cached(*past, index_, heads.k, heads.v);
  AttentionOutput output;
  if (eager_) {
    output = EagerAttentionForward(heads.q, heads.k, heads.v, mask, options_);
  } else {
    output.states = SdpaAttentionForward(heads.q, heads.k, heads.v, mask, options_);
  }
  output.states = Contiguous(Reshape(output.states, {hidden.size(0), hidden.size(1), -1}));
  output.states = out_(output.states);
  output.states = Dropout(output.states, inner_dropout_);
  return output;
}

// ---- Feed-forward ----

DecoderMlp::DecoderMlp(const Scope& scope, const DecoderLayout& layout,
                       const DecoderOptions& options, Activation activation)
    : id_(scope.id()), kind_(layout.mlp), activation_(activation), dropout_(options.inner_dropout) {
  switch (kind_) {
    case Layout::Mlp::kGated:
      for (const char* name : {"gate_proj", "up_proj", "down_proj"})
        linears_.emplace_back(scope / name);
      return;
    case Layout::Mlp::kFusedGated:
      for (const char* name : {"gate_up_proj", "down_proj"}) linears_.emplace_back(scope / name);
      return;
    case Layout::Mlp::kPlain:
      linears_.emplace_back(scope / layout.up_name);
      linears_.emplace_back(scope / layout.down_name);
      return;
  }
}

Tensor DecoderMlp::operator()(const Tensor& x) const {
  const InModule in(x.runtime(), id_);
  const Scoped kind(x.runtime().kind, Kind::kMlp);
  switch (kind_) {
    case Layout::Mlp::kGated:
      return Gated(x);
    case Layout::Mlp::kFusedGated:
      return FusedGated(x);
    case Layout::Mlp::kPlain:
      break;
  }
  return Plain(x);
}

// down_proj(act_fn(gate_proj(x)) * up_proj(x))
Tensor DecoderMlp::Gated(const Tensor& x) const {
  Tensor gate = linears_[0](x);
  gate = activation_(gate);
  const Tensor product = [&] {
    const Tensor gated = std::move(gate);
    const Tensor up = linears_[1](x);
    return Mul(gated, up);
  }();
  return linears_[2](product);
}

Tensor DecoderMlp::FusedGated(const Tensor& x) const {
  Tensor gate;
  Tensor up;
  {
    std::vector<Tensor> parts;
    {
      const Tensor both = linears_[0](x);
      parts = Split(both, both.size(-1) / 2, -1);
    }
    gate = std::move(parts[0]);
    up = std::move(parts[1]);
  }
  {
    const Tensor activated = activation_(gate);
    up = Mul(up, activated);
  }
  return linears_[1](up);
}

Tensor DecoderMlp::Plain(const Tensor& x) const {
  Tensor hidden = linears_[0](x);
  hidden = activation_(hidden);
  hidden = linears_[1](hidden);
  return Dropout(hidden, dropout_);
}

}  // namespace headroom::predict
