// SPDX-License-Identifier: Apache-2.0
//
// BeamState: the tensors that beam search keeps and makes at every step, apart from logits.
//
// All are of integers and small next to a cache, but grow with batch x beams x length:
// [8, 4, 4096] sequences are 1 MiB, and a step holds several copies.
#pragma once

#include <cstdint>

#include "predict/runtime.h"
#include "predict/tensor.h"

namespace headroom::predict {

struct BeamSizes {
  int64_t batch = 1;
  int64_t beams = 1;
  int64_t prompt = 0;
  int64_t max_length = 0;
  int64_t end_tokens = 0;  // ids of the end of a sequence
};

class BeamState {
 public:
  BeamState(Runtime& runtime, const BeamSizes& sizes);

  // running_sequences[:, :, :length], a row for each beam.
  Tensor FlatSequences(int64_t length) const;
  // One choice of continuations; returns the beam that each of the next beams continues.
  Tensor Step();

 private:
  Tensor Make(int64_t beams, int64_t length, DType dtype) const;
  Tensor MakeScores(int64_t beams, DType dtype) const;

  Runtime& runtime_;
  BeamSizes sizes_;
  int64_t kept_;  // candidates of a step
  Tensor top_mask_;
  Tensor running_sequences_, sequences_;
  Tensor running_scores_, scores_;
  Tensor running_indices_, indices_;
  Tensor is_finished_;
  Tensor can_improve_;
  Tensor hits_criteria_;
  // Names that live from one step to the next.
  Tensor top_scores_, top_sequences_, top_indices_;
  Tensor chosen_;
};

}  // namespace headroom::predict
