// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/starcoder2/modeling_starcoder2.py.
#include "predict/models/architectures.h"
#include "predict/models/decoder.h"

namespace headroom::predict {
namespace {

DecoderOptions StarCoder2(const ModelConfig& config) {
  return {
      .masks = DecoderOptions::Masks::kSlidingIfSet,
      .embedding_dropout = config.Float("embedding_dropout"),
      .inner_dropout = config.Float("residual_dropout"),
  };
}

}  // namespace

extern const Architecture kStarCoder2 = DecoderArchitecture<&StarCoder2>("starcoder2");

}  // namespace headroom::predict
