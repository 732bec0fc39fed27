// SPDX-License-Identifier: Apache-2.0
//
// ALiBi: positions as a bias of the attention scores, a slope per head times the distance.
#pragma once

#include "predict/tensor.h"

namespace headroom::predict {

// build_alibi_tensor of modeling_bloom.py: [batch * heads, 1, sequence] in `dtype`, of a mask
// [batch, sequence]. `slopes_dtype` is what the slopes are cast to first (Falcon: bfloat16).
Tensor BuildAlibi(const Tensor& attention_mask, int64_t heads, DType dtype, DType slopes_dtype);

// build_mpt_alibi_tensor of modeling_mpt.py: [heads, 1, sequence].
Tensor BuildMptAlibi(Runtime& runtime, int64_t heads, int64_t sequence);

}  // namespace headroom::predict
