// SPDX-License-Identifier: Apache-2.0
//
// What a model's KV cache holds for one token of one sequence.
//
//   Llama 3.1 8B: 32 layers x 2 x 8 heads x 128 x 2 B = 131,072 B
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "model/config.h"

namespace headroom {

struct KvLayout {
  int64_t layers = 0;
  int64_t heads = 0;  // of keys and values
  int64_t head_dim = 0;

  int64_t BytesPerToken(DType dtype) const {
    return 2 * layers * heads * head_dim * ElementSize(dtype);
  }
};

// Of the decoder's self-attention.
KvLayout KvLayoutOf(const ModelConfig& config);

}  // namespace headroom
