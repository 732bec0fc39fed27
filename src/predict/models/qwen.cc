// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/{qwen2,qwen3,qwen2_moe,qwen3_moe}/modeling_*.py.
#include "predict/models/architectures.h"
#include "predict/models/decoder.h"

namespace headroom::predict {
namespace {

// Qwen 2 and 3 differ in their tensors only.
DecoderOptions Qwen(const ModelConfig&) { return {.masks = DecoderOptions::Masks::kByLayer}; }

DecoderOptions Qwen2Moe(const ModelConfig& config) {
  return {
      .masks = DecoderOptions::Masks::kBoth,
      .normalises_experts = config.Bool("norm_topk_prob"),
  };
}

DecoderOptions Qwen3Moe(const ModelConfig& config) {
  return {
      .masks = DecoderOptions::Masks::kSlidingIfSet,
      .normalises_experts = config.Bool("norm_topk_prob"),
  };
}

}  // namespace

extern const Architecture kQwen2 = DecoderArchitecture<&Qwen>("qwen2");
extern const Architecture kQwen2Moe = DecoderArchitecture<&Qwen2Moe>("qwen2_moe");
extern const Architecture kQwen3 = DecoderArchitecture<&Qwen>("qwen3");
extern const Architecture kQwen3Moe = DecoderArchitecture<&Qwen3Moe>("qwen3_moe");

}  // namespace headroom::predict
