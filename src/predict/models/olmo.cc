// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/olmo/modeling_olmo.py, models/olmo2/modeling_olmo2.py.
#include "predict/models/architectures.h"
#include "predict/models/decoder.h"

namespace headroom::predict {
namespace {

DecoderOptions Olmo(const ModelConfig&) {
  return {
      .rotary = DecoderOptions::Rotary::kInFloat,
      .projections = DecoderOptions::Projections::kFirst,
  };
}

}  // namespace

extern const Architecture kOlmo = DecoderArchitecture<&Olmo>("olmo");
extern const Architecture kOlmo2 = DecoderArchitecture<&Olmo>("olmo2");

}  // namespace headroom::predict
