// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/phi/modeling_phi.py, models/phi3/modeling_phi3.py.
#include "predict/models/architectures.h"
#include "predict/models/decoder.h"

namespace headroom::predict {
namespace {

DecoderOptions Phi(const ModelConfig& config) {
  return {
      .rotary = DecoderOptions::Rotary::kPart,
      .block = DecoderOptions::Block::kBranchesFirst,
      .embedding_dropout = config.Float("embd_pdrop"),
      .embedding_dropout_replaces = true,
      .residual_dropout = config.Float("resid_pdrop"),
  };
}

DecoderOptions Phi3(const ModelConfig& config) {
  return {
      .rotary = DecoderOptions::Rotary::kPartInside,
      .masks = DecoderOptions::Masks::kSlidingIfSet,
      .residual_dropout = config.Float("resid_pdrop"),
  };
}

}  // namespace

extern const Architecture kPhi = DecoderArchitecture<&Phi>("phi");
extern const Architecture kPhi3 = DecoderArchitecture<&Phi3>("phi3");

}  // namespace headroom::predict
