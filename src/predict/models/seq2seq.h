// SPDX-License-Identifier: Apache-2.0
//
// What encoder-decoder modelling files share: the decoder's inputs are the labels, shifted.
#pragma once

#include "predict/tensor.h"

namespace headroom::predict {

// shift_tokens_right and T5's _shift_right: a start token, then all labels but the last.
Tensor ShiftTokensRight(const Tensor& labels);

// shift_tokens_right of mBART, which starts each row with that row's own last token.
Tensor ShiftTokensRightAroundEos(const Tensor& labels);

// torch.isfinite(hidden).all(), which BART and Whisper ask of fp16 states.
void CheckFinite(const Tensor& hidden);

}  // namespace headroom::predict
