// SPDX-License-Identifier: Apache-2.0
//
// DeBERTa-v2's attention: besides content against content, every query is scored against the
// embeddings of its keys' relative positions (c2p), and every key against its queries' (p2c).
//
//   const RelativeOptions options = ReadRelativeOptions(config);
//   DisentangledAttention attention(scope / "self", config, options);
//   Tensor states = attention(hidden, mask, {positions, embeddings});
#pragma once

#include <optional>

#include "predict/model.h"

namespace headroom::predict {

// What the relative attention of a config asks for.
struct RelativeOptions {
  bool enabled = false;
  bool content_to_position = false;
  bool position_to_content = false;
  bool share_keys = false;
  bool normed = false;    // "layer_norm" in norm_rel_ebd
  bool bucketed = false;  // far positions share logarithmic buckets
  int64_t span = 0;       // half the rows of the table of relative positions
};

RelativeOptions ReadRelativeOptions(const ModelConfig& config);

// build_relative_position: [1, sequence, sequence], int64. `first`: no call came before, so that
// TorchScript has not fused the function yet.
Tensor RelativePositions(Runtime& runtime, int64_t sequence, bool bucketed, bool first);

// Positions that every layer shares.
struct Relative {
  Tensor positions;   // [1, sequence, sequence]
  Tensor embeddings;  // [2 * span, hidden]
};

class DisentangledAttention {
 public:
  DisentangledAttention(const Scope& scope, const ModelConfig& config,
                        const RelativeOptions& options);

  // `attention_mask` [batch, 1, sequence, sequence] of any type. Returns [batch, sequence, width].
  Tensor operator()(const Tensor& hidden, const Tensor& attention_mask,
                    const Relative& relative) const;

 private:
  Tensor ForScores(const Tensor& x) const;
  Tensor OfPositions(const Linear& projection, const Tensor& embeddings, int64_t batch) const;
  Tensor PositionBias(const Tensor& q, const Tensor& k, const Tensor& positions,
                      const Tensor& dropped) const;

  ModuleId id_;
  Linear query_;
  Linear key_;
  Linear value_;
  std::optional<Linear> position_key_;
  std::optional<Linear> position_query_;
  int64_t heads_;
  RelativeOptions options_;
  double dropout_;
  double position_dropout_;
};

}  // namespace headroom::predict
