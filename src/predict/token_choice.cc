// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0: generation/logits_process.py.
#include "predict/token_choice.h"

#include <algorithm>
#include <span>

#include "predict/cuda_reduce.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {

Tensor LastLogits(const Tensor& logits) {
  const Tensor last = Select(logits, 1, -1);
  return ToCopy(last, DType::kFloat32);
}

Tensor SuppressEnd(const Tensor& scores) {
  Runtime& runtime = scores.runtime();
  const Tensor vocabulary = Arange(runtime, scores.size(-1));
  const Tensor is_end = Empty(runtime, {scores.size(-1)}, DType::kBool);
  Tensor processed = Clone(scores);
  const Tensor infinity = Empty(runtime, {}, scores.dtype());
  const Tensor inputs[] = {is_end, infinity, scores};
  processed = Elementwise("aten::where", inputs, scores.dtype());
  return processed;
}

Tensor KeepTopK(const Tensor& scores) {
  constexpr int64_t kTopK = 50;
  Runtime& runtime = scores.runtime();
  const int64_t kept = std::min(kTopK, scores.size(-1));
  Tensor removed;
  {
    const Tensor values = Empty(runtime, {scores.size(0), kept}, scores.dtype());
    const Tensor indices = Empty(runtime, {scores.size(0), kept}, DType::kInt64);
    removed = Empty(runtime, scores.shape(), DType::kBool);
  }
  return MaskedFill(scores, removed);
}

Tensor ArgMax(const Tensor& scores) {
  Runtime& runtime = scores.runtime();
  const OpScope op(runtime, "aten::argmax");
  Tensor out = Empty(runtime, {scores.size(0)}, DType::kInt64);
  constexpr int64_t kPair = 16;  // value and position are reduced together
  const int last = 1;
  const ReductionScratch scratch =
      PlanReduction(scores, std::span(&last, 1), kPair, runtime.platform().gpu);
  if (scratch.buffer > 0) {
    const Ref<Storage> buffer = runtime.Scratch(scratch.buffer);
    const Ref<Storage> semaphores = runtime.Scratch(scratch.semaphores);
  }
  return out;
}

}  // namespace headroom::predict
