// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0: generation/utils.py, _beam_search and its helpers.
#include "predict/beams.h"

#include <algorithm>

#include "predict/ops.h"

namespace headroom::predict {

Tensor BeamState::Make(int64_t beams, int64_t length, DType dtype) const {
  return Empty(runtime_, {sizes_.batch, beams, length}, dtype);
}

Tensor BeamState::MakeScores(int64_t beams, DType dtype) const {
  return Empty(runtime_, {sizes_.batch, beams}, dtype);
}

BeamState::BeamState(Runtime& runtime, const BeamSizes& sizes)
    : runtime_(runtime),
      sizes_(sizes),
      kept_(std::max<int64_t>(2, 1 + sizes.end_tokens) * sizes.beams) {
  const Scoped component(runtime.component, Component::kInputs);
  const int64_t beams = sizes.beams;
  top_mask_ = Empty(runtime, {kept_}, DType::kBool);
  running_sequences_ = Make(beams, sizes.max_length, DType::kInt64);
  sequences_ = Make(beams, sizes.max_length, DType::kInt64);
  running_scores_ = MakeScores(beams, DType::kFloat32);
  scores_ = MakeScores(beams, DType::kFloat32);
  is_finished_ = MakeScores(beams, DType::kBool);
  can_improve_ = MakeScores(1, DType::kBool);
  hits_criteria_ = MakeScores(beams, DType::kBool);
  running_indices_ = Make(beams, sizes.max_length - sizes.prompt, DType::kInt32);
  indices_ = Make(beams, sizes.max_length - sizes.prompt, DType::kInt32);
}

Tensor BeamState::FlatSequences(int64_t length) const {
  const Tensor sequences = Slice(running_sequences_, 2, 0, length);
  return Reshape(sequences, {sizes_.batch * sizes_.beams, length});
}

Tensor BeamState::Step() {
  const int64_t beams = sizes_.beams;
  const int64_t new_tokens = sizes_.max_length - sizes_.prompt;
  {
    // _get_top_k_continuations
    Tensor top_scores = MakeScores(kept_, DType::kFloat32);
    const Tensor top_positions = MakeScores(kept_, DType::kInt64);
    const Tensor of_beam = MakeScores(kept_, DType::kInt64);
    Tensor top_indices = Make(kept_, new_tokens, DType::kInt32);
    Tensor top_sequences = Make(kept_, sizes_.max_length, DType::kInt64);
    const Tensor tokens = MakeScores(kept_, DType::kInt64);
    top_scores_ = std::move(top_scores);
    top_sequences_ = std::move(top_sequences);
    top_indices_ = std::move(top_indices);
  }
  hits_criteria_ = MakeScores(kept_, DType::kBool);
  {
    // _get_running_beams_for_next_iteration
    const Tensor log_probabilities = MakeScores(kept_, DType::kFloat32);
    const Tensor next = MakeScores(beams, DType::kInt64);
    Tensor sequences = Make(beams, sizes_.max_length, DType::kInt64);
    Tensor scores = MakeScores(beams, DType::kFloat32);
    Tensor indices = Make(beams, new_tokens, DType::kInt32);
    running_sequences_ = std::move(sequences);
    running_scores_ = std::move(scores);
    running_indices_ = std::move(indices);
  }
  {
    // _update_finished_beams
    const Tensor log_probabilities = MakeScores(kept_, DType::kFloat32);
    const Tensor merged_sequences = Make(beams + kept_, sizes_.max_length, DType::kInt64);
    const Tensor merged_scores = MakeScores(beams + kept_, DType::kFloat32);
    const Tensor merged_indices = Make(beams + kept_, new_tokens, DType::kInt32);
    const Tensor merged_finished = MakeScores(beams + kept_, DType::kBool);
    const Tensor top = MakeScores(beams, DType::kInt64);
    Tensor sequences = Make(beams, sizes_.max_length, DType::kInt64);
    Tensor scores = MakeScores(beams, DType::kFloat32);
    Tensor indices = Make(beams, new_tokens, DType::kInt32);
    Tensor finished = MakeScores(beams, DType::kBool);
    sequences_ = std::move(sequences);
    scores_ = std::move(scores);
    indices_ = std::move(indices);
    is_finished_ = std::move(finished);
  }
  chosen_ = Empty(runtime_, {sizes_.batch * beams}, DType::kInt32);
  return chosen_;
}

}  // namespace headroom::predict
