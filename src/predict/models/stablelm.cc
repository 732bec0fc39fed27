// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/stablelm/modeling_stablelm.py.
#include "predict/models/architectures.h"
#include "predict/models/decoder.h"

namespace headroom::predict {
namespace {

DecoderOptions StableLm(const ModelConfig& config) {
  return {
      .rotary = DecoderOptions::Rotary::kPart,
      .projections = DecoderOptions::Projections::kFirst,
      .block = DecoderOptions::Block::kHoldingNames,
      .residual_dropout = config.Float("hidden_dropout"),
  };
}

}  // namespace

extern const Architecture kStableLm = DecoderArchitecture<&StableLm>("stablelm");

}  // namespace headroom::predict
