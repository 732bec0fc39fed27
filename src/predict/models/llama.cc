// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/{llama,granite,smollm3}/modeling_*.py.
#include "predict/models/architectures.h"
#include "predict/models/decoder.h"

namespace headroom::predict {
namespace {

DecoderOptions Llama(const ModelConfig&) { return {}; }

DecoderOptions Granite(const ModelConfig&) {
  return {
      .scales_embedding = true,
      .scales_residual = true,
      .logit_scale = DecoderOptions::LogitScale::kDivide,
  };
}

// Which layers rotate stands in the config: no_rope_layers.
DecoderOptions SmolLm3(const ModelConfig&) { return {.masks = DecoderOptions::Masks::kByLayer}; }

}  // namespace

extern const Architecture kGranite = DecoderArchitecture<&Granite>("granite");
extern const Architecture kLlama = DecoderArchitecture<&Llama>("llama");
extern const Architecture kSmolLm3 = DecoderArchitecture<&SmolLm3>("smollm3");

}  // namespace headroom::predict
