// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/{gemma,gemma2,gemma3}/modeling_*.py.
#include "predict/models/architectures.h"
#include "predict/models/decoder.h"

namespace headroom::predict {
namespace {

DecoderOptions Gemma(const ModelConfig&) { return {}; }

DecoderOptions Gemma2(const ModelConfig& config) {
  return {
      .masks = DecoderOptions::Masks::kBoth,
      .activation = "hidden_activation",
      .caps_attention = config.Has("attn_logit_softcapping"),
      .caps_logits = config.Has("final_logit_softcapping"),
  };
}

// Its attention never caps.
DecoderOptions Gemma3(const ModelConfig& config) {
  DecoderOptions options = Gemma2(config);
  options.caps_attention = false;
  return options;
}

}  // namespace

extern const Architecture kGemma = DecoderArchitecture<&Gemma>("gemma");
extern const Architecture kGemma2 = DecoderArchitecture<&Gemma2>("gemma2");
extern const Architecture kGemma3Text = DecoderArchitecture<&Gemma3>("gemma3_text");

}  // namespace headroom::predict
