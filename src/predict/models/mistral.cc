// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/mistral/modeling_mistral.py, models/mixtral/modeling_mixtral.py.
#include "predict/models/architectures.h"
#include "predict/models/decoder.h"

namespace headroom::predict {
namespace {

DecoderOptions Mistral(const ModelConfig&) {
  return {.masks = DecoderOptions::Masks::kSlidingIfSet};
}

DecoderOptions Mixtral(const ModelConfig&) {
  return {
      .masks = DecoderOptions::Masks::kSlidingIfSet,
      .normalises_experts = true,
      .casts_router_to_float = true,
  };
}

}  // namespace

extern const Architecture kMistral = DecoderArchitecture<&Mistral>("mistral");
extern const Architecture kMixtral = DecoderArchitecture<&Mixtral>("mixtral");

}  // namespace headroom::predict
