// SPDX-License-Identifier: Apache-2.0
//
// TRL 1.16.0: trainer/utils.py, add_fused_lm_head; kernels/chunked_logprob.py,
// ChunkedLogProbFunction. Not measured.
#include "predict/models/fused_head.h"

#include <algorithm>

#include "predict/autograd.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

constexpr int64_t kTokens = 4096;   // TOKEN_CHUNK_SIZE
constexpr int64_t kWords = 32768;   // _CHUNKED_LOGPROB_CHUNK_SIZE
constexpr int kRunningNumbers = 7;  // running_max, sum_exp, x_sum_exp, sq_sum_exp, z_sum, …

struct Tiling {
  int64_t tokens;
  int64_t words;
  int64_t width;
  DType dtype;  // what the products run in
};

// The tile and the 16-bit copies of its two factors, which live while it is folded.
void ComputeTiles(Runtime& runtime, const Tensor& hidden, const Tensor& weight,
                  const Tiling& tiling) {
  const Tensor buffer = Empty(runtime, {std::min(tiling.tokens, kTokens), kWords}, tiling.dtype);
  Tensor rows;
  if (hidden.dtype() != tiling.dtype) {
    rows = Empty(runtime, {std::min(tiling.tokens, kTokens), tiling.width}, tiling.dtype);
  }
  Tensor words;
  if (weight.dtype() != tiling.dtype) {
    words = Empty(runtime, {std::min(tiling.words, kWords), tiling.width}, tiling.dtype);
  }
  runtime.EnsureCublasWorkspace(Runtime::Gemm::kPlain);
}

// hidden[mask]: the positions whose next token is scored; all of them where nothing is masked.
Tensor ScoredStates(const Tensor& hidden) {
  Runtime& runtime = hidden.runtime();
  const Shape shape = hidden.shape();
  const Tensor view = Slice(hidden, 1, 0, shape[1] - 1);
  const int64_t count = shape[0] * (shape[1] - 1);
  GradRecorder record(runtime, "IndexBackward0", {view});
  const Tensor indices = Empty(runtime, {count, 2}, DType::kInt64);
  const SavedTensor saved = record.Save(indices);
  Tensor states = Empty(runtime, {count, shape[2]}, hidden.dtype());
  return record.Finish(std::move(states), [saved, shape](Grads& grads) -> Grads {
    return {Empty(grads[0].runtime(), {shape[0], shape[1] - 1, shape[2]}, grads[0].dtype())};
  });
}

// ChunkedLogProbFunction.apply: one number a token.
Tensor LogProbs(const Tensor& states, const Tensor& weight, const Tensor& bias,
                const Tensor& targets) {
  Runtime& runtime = states.runtime();
  const DType dtype = runtime.autocast.enabled ? runtime.autocast.dtype : states.dtype();
  const Tiling tiling = {states.size(0), weight.size(0), weight.size(1), dtype};
  const Shape tokens = {tiling.tokens};
  GradRecorder record(runtime, "ChunkedLogProbFunctionBackward", {states, weight, bias});
  const SavedTensor saved_states = record.Save(states);
  const SavedTensor saved_weight = record.Save(weight);
  const SavedTensor saved_targets = record.Save(targets);
  Tensor log_probs;
  Tensor log_z;
  Tensor entropy;
  {
    std::vector<Tensor> running;
    for (int i = 0; i < kRunningNumbers; ++i) {
      running.push_back(Empty(runtime, tokens, DType::kFloat32));
    }
    ComputeTiles(runtime, states, weight, tiling);
    log_z = Empty(runtime, tokens, DType::kFloat32);
    log_probs = Empty(runtime, tokens, DType::kFloat32);
    entropy = Empty(runtime, tokens, DType::kFloat32);
  }
  const SavedTensor saved_log_z = record.Save(log_z);
  const SavedTensor saved_entropy = record.Save(entropy);
  return record.Finish(
      std::move(log_probs),
      [saved_states, saved_weight, saved_targets, saved_log_z, saved_entropy, tiling,
       has_bias = bias.defined()](Grads& grads) -> Grads {
        Runtime& backward = grads[0].runtime();
        const Tensor hidden = saved_states.Unpack();
        const Tensor head = saved_weight.Unpack();
        Tensor grad_states = Empty(backward, hidden.shape(), DType::kFloat32);
        Tensor grad_weight = Empty(backward, head.shape(), DType::kFloat32);
        Tensor grad_bias;
        if (has_bias) grad_bias = Empty(backward, {tiling.words}, DType::kFloat32);
        ComputeTiles(backward, hidden, head, tiling);
        grad_states = To(grad_states, hidden.dtype());
        grad_weight = To(grad_weight, head.dtype());
        return {std::move(grad_states), std::move(grad_weight), std::move(grad_bias)};
      });
}

}  // namespace

ModelOutput FusedLmHead(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                        const Batch& batch) {
  Runtime& runtime = hidden.runtime();
  const Scoped kind(runtime.kind, Kind::kLogitsLoss);
  const Tensor labels = Slice(batch.labels, 1, 1, batch.labels.size(1));
  const Tensor mask = CompareScalar(labels);
  const Tensor states = ScoredStates(hidden);
  const Tensor targets = Empty(runtime, {states.size(0)}, DType::kInt64);
  const Tensor log_probs = LogProbs(states, weight, bias, targets);
  // masked_scatter puts them back in their places; the loss is their sum over the number of tokens.
  const Tensor placed = AddScalar(log_probs);
  GradRecorder record(runtime, "SumBackward0", {placed});
  const Shape shape = placed.shape();
  Tensor loss = Empty(runtime, {}, DType::kFloat32);
  loss = record.Finish(std::move(loss), [shape](Grads& grads) -> Grads {
    return {Empty(grads[0].runtime(), shape, grads[0].dtype())};
  });
  return {loss, Tensor(), {}};
}

}  // namespace headroom::predict
