// SPDX-License-Identifier: Apache-2.0
//
// The language-model head of TRL's SFTTrainer: log-probabilities of the labels without the logits.
//
// The projection runs in tiles of 4,096 tokens by 32,768 words, which forward folds into a few
// numbers a token and backward computes again. What lives on is the hidden states of the scored
// positions; what is large for a moment is a tile, and in backward fp32 gradients of the head's
// weight and input.
#pragma once

#include "predict/model.h"
#include "predict/tensor.h"

namespace headroom::predict {

// `hidden` [batch, sequence, width] against `weight` [vocabulary, width]; `bias` may be undefined.
ModelOutput FusedLmHead(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                        const Batch& batch);

}  // namespace headroom::predict
