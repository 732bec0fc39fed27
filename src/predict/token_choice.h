// SPDX-License-Identifier: Apache-2.0
//
// From logits to a token: what generation makes of the scores of every step.
//
//   next_token_logits = LastLogits(logits);             // [batch, vocabulary] in fp32
//   next_token_scores = SuppressEnd(next_token_logits); // a logits processor
//   next_tokens = ArgMax(next_token_scores);
#pragma once

#include "predict/tensor.h"

namespace headroom::predict {

// logits[:, -1].to(copy=True, dtype=torch.float32)
Tensor LastLogits(const Tensor& logits);

// MinLengthLogitsProcessor and MinNewTokensLengthLogitsProcessor: a clone, in whose place stands
// where(vocabulary == end, -inf, scores).
Tensor SuppressEnd(const Tensor& scores);

// TopKLogitsWarper with GenerationConfig's default of 50.
Tensor KeepTopK(const Tensor& scores);

// torch.argmax(scores, dim=-1)
Tensor ArgMax(const Tensor& scores);

}  // namespace headroom::predict
