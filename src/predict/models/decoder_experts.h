// SPDX-License-Identifier: Apache-2.0
//
// The sparse feed-forward of Mixtral and the Qwen mixtures: a router that chooses experts for each
// token, and the experts' products, grouped (transformers' default, grouped_mm).
#pragma once

#include <optional>

#include "predict/models/decoder_parts.h"

namespace headroom::predict {

class SparseMoeBlock {
 public:
  SparseMoeBlock(const Scope& scope, const DecoderLayout& layout, const DecoderOptions& options,
                 Activation activation);

  Tensor operator()(const Tensor& hidden) const;

 private:
  struct Routing {
    Tensor logits;
    Tensor weights;
    Tensor experts;
  };
  Routing Route(const Tensor& hidden) const;
  Tensor RunExperts(const Tensor& hidden, const Routing& routing) const;
  Tensor RunChosenExperts(const Tensor& hidden, const Routing& routing) const;
  Tensor ApplyGate(const Tensor& gate_up) const;

  ModuleId id_;
  ModuleId gate_id_;
  ModuleId experts_id_;
  Tensor gate_;
  Tensor gate_up_proj_;
  Tensor down_proj_;
  int64_t count_;
  int64_t per_token_;
  bool normalises_;
  bool casts_to_float_;
  Activation activation_;
  std::optional<DecoderMlp> shared_expert_;
  std::optional<Linear> shared_expert_gate_;
};

}  // namespace headroom::predict
