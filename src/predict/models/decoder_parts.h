// SPDX-License-Identifier: Apache-2.0
//
// The parts of the shared decoder: norms, attention, feed-forward. See decoder.h.
#pragma once

#include <utility>
#include <vector>

#include "predict/models/attention.h"
#include "predict/models/decoder.h"

namespace headroom::predict {

class DecoderNorm {
 public:
  DecoderNorm(const Scope& scope, DecoderLayout::Norm kind)
      : id_(scope.id()), kind_(kind), weight_(scope.Find("weight")), bias_(scope.Find("bias")) {}

  Tensor operator()(const Tensor& x) const;

 private:
  Tensor Rms(const Tensor& x) const;
  Tensor RmsPlusOne(const Tensor& x) const;
  Tensor Cohere(const Tensor& x) const;

  ModuleId id_;
  DecoderLayout::Norm kind_;
  Tensor weight_;
  Tensor bias_;
};

struct PositionEmbeddings {
  Tensor cos;
  Tensor sin;
};

class DecoderAttention {
 public:
  DecoderAttention(const Scope& scope, const ModelArguments& arguments, const DecoderLayout& layout,
                   const DecoderOptions& options, int64_t index, bool rotates);

  AttentionOutput operator()(const Tensor& hidden, const PositionEmbeddings& positions,
                             const Tensor& mask, KeyValueCache* past) const;

 private:
  // Queries, keys and values, [batch, heads, sequence, head_dim].
  struct Heads {
    Tensor q, k, v;
    // Names of the Python frame that live as long as it does.
    std::vector<Tensor> frame;
  };
  Heads Project(const Tensor& hidden) const;
  Heads ProjectFused(const Tensor& hidden) const;
  Heads ProjectOneByOne(const Tensor& hidden) const;
  Heads ProjectFirst(const Tensor& hidden) const;
  Heads ProjectViewed(const Tensor& hidden) const;
  void NormMoved(Heads& heads) const;
  void Rotate(Heads& heads, const PositionEmbeddings& positions) const;
  Tensor SplitHeads(const Tensor& x) const;  // .view(batch, sequence, heads, head_dim)

  ModuleId id_;
  size_t index_;
  DecoderLayout::QkNorm qk_norm_;
  DecoderOptions::Projections order_;
  DecoderOptions::Rotary rotary_;
  bool rotates_;
  bool eager_;
  int64_t heads_;
  int64_t kv_heads_;
  int64_t head_dim_;
  int64_t rotary_dim_;
  double inner_dropout_;
  AttentionOptions options_;
  std::vector<Linear> projections_;  // q, k, v, or the fused one
  Linear out_;
  std::vector<DecoderNorm> qk_norms_;    // of q and of k
  std::vector<LayerNorm> q_head_norms_;  // kPerHead
  std::vector<LayerNorm> k_head_norms_;
};

class DecoderMlp {
 public:
  DecoderMlp(const Scope& scope, const DecoderLayout& layout, const DecoderOptions& options,
             Activation activation);

  Tensor operator()(const Tensor& x) const;

 private:
  Tensor Gated(const Tensor& x) const;
  Tensor FusedGated(const Tensor& x) const;
  Tensor Plain(const Tensor& x) const;

  ModuleId id_;
  DecoderLayout::Mlp kind_;
  Activation activation_;
  double dropout_;
  std::vector<Linear> linears_;  // in the order of use
};

}  // namespace headroom::predict
