// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/cohere/modeling_cohere.py.
#include "predict/models/architectures.h"
#include "predict/models/decoder.h"

namespace headroom::predict {
namespace {

DecoderOptions Cohere(const ModelConfig&) {
  return {
      .rotary = DecoderOptions::Rotary::kThroughFloat,
      .projections = DecoderOptions::Projections::kViewed,
      .block = DecoderOptions::Block::kResidualFirst,
      .logit_scale = DecoderOptions::LogitScale::kMultiply,
  };
}

}  // namespace

extern const Architecture kCohere = DecoderArchitecture<&Cohere>("cohere");

}  // namespace headroom::predict
