// SPDX-License-Identifier: Apache-2.0
//
// _scaled_dot_product_attention_math, aten/src/ATen/native/transformers/attention.cpp, PyTorch
// 2.11.0: what is left when no fused kernel takes the inputs, such as a mask that wants a gradient
// or grouped heads in fp32.
#include "predict/autograd.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

// `scores.add_(mask)`: a node that adds in place, without memory.
Tensor AddMask(const Tensor& scores, const Tensor& mask) {
  GradRecorder record(scores.runtime(), "AddBackward0", {scores, mask});
  const bool needs_mask = record.Needs(1);
  ReportMap("aten::add_", {scores, mask}, {scores});
  return record.Finish(Detach(scores), [needs_mask](Grads& grads) -> Grads {
    return {grads[0], needs_mask ? grads[0] : Tensor()};
  });
}

// at::_safe_softmax: rows of -inf alone become zeros, in place. Only its result is saved.
Tensor SafeSoftmax(const Tensor& scores) {
  Runtime& runtime = scores.runtime();
  const Scoped kind(runtime.kind, Kind::kAttentionScores);
  GradRecorder record(runtime, "SafeSoftmaxBackward0", {scores});
  const OpScope op(runtime, "aten::_safe_softmax");
  Tensor result;
  {
    const Scoped no_grad(runtime.grad_enabled, false);
    result = Softmax(scores);
    const Tensor masked = CompareScalar(scores);
    Shape rows = scores.shape();
    rows[-1] = 1;
    const Tensor masked_rows = Empty(runtime, rows, DType::kBool);
    const Tensor zero = Empty(runtime, {}, scores.dtype());
  }
  const SavedTensor saved = record.SaveOutput(result);
  return record.Finish(std::move(result), [saved](Grads& grads) -> Grads {
    const Tensor output = saved.Unpack();
    Tensor grad_input = EmptyLike(output);
    const Tensor product = EmptyLike(grads[0]);
    ReportMap("aten::mul", {grads[0], output}, {product});
    ReportNormalization("aten::_softmax_backward_data", {product, output}, {grad_input}, 4);
    return {grad_input};
  });
}

// ones(L, S).tril() as the additive mask of causal attention.
Tensor CausalMask(const Tensor& q, const Tensor& k) {
  Runtime& runtime = q.runtime();
  const Scoped kind(runtime.kind, Kind::kPosition);
  const Shape shape = {q.size(-2), k.size(-2)};
  Tensor lower;
  {
    const Tensor ones = Empty(runtime, shape, DType::kBool);
    lower = Empty(runtime, shape, DType::kBool);
  }
  return AdditiveMask(lower, q.dtype());
}

}  // namespace

Tensor MathAttention(const Tensor& query, const Tensor& key, const Tensor& value,
                     const Tensor& given_mask, const SdpaOptions& options) {
  // Autocast has cast the arguments and leaves what lies below alone.
  const Scoped no_autocast(query.runtime().autocast.enabled, false);
  const DType origin = query.dtype();
  // 16-bit inputs are computed in fp32; query and key are scaled by the root of the scale each.
  const DType compute = IsHalf(origin) ? DType::kFloat32 : origin;
  const Tensor query_acc = To(query, compute);
  const Tensor key_acc = To(key, compute);
  const Tensor value_acc = To(value, compute);
  const Tensor q = MulScalar(query_acc);
  const Tensor mask = options.is_causal ? CausalMask(q, key_acc) : given_mask;
  // pre_process_group_query_attention_input.
  const int64_t groups = q.size(1) / key_acc.size(1);
  const Tensor keys = groups == 1 ? key_acc : RepeatInterleave(key_acc, groups, -3);
  const Tensor values = groups == 1 ? value_acc : RepeatInterleave(value_acc, groups, -3);
  Tensor weights;
  {
    const Scoped kind(query.runtime().kind, Kind::kAttentionScores);
    {
      const Tensor k = MulScalar(Transpose(keys, -2, -1));
      weights = Matmul(q, k);
    }
    if (mask.defined()) weights = AddMask(weights, mask);
    weights = SafeSoftmax(weights);
    weights = Dropout(weights, options.dropout);
  }
  // The second result, the weights in the inputs' type, is made first and then dropped.
  const Tensor returned_weights = To(weights, origin);
  const Tensor output = Matmul(weights, values);
  return To(output, origin);
}

}  // namespace headroom::predict
