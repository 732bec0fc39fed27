// SPDX-License-Identifier: Apache-2.0
//
// The fused attention backends, aten/src/ATen/native/transformers/cuda/{sdp_utils.cpp,attention.cu,
// attention_backward.cu} and aten/src/ATen/native/cudnn/MHA.cpp, PyTorch 2.11.0.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "predict/autograd.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

enum class Backend { kCudnn, kFlash, kEfficient, kMath };

constexpr int64_t RoundUpTo(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// _fused_sdp_choice_cuda: on Hopper and data-centre Blackwell cuDNN goes first, elsewhere flash.
Backend ChooseBackend(const Gpu& gpu, const Tensor& q, const Tensor& v, const Tensor& mask,
                      bool gqa) {
  // check_last_dim_stride_equals_1_dense: no fused kernel takes a mask stored otherwise.
  if (mask.defined() && mask.strides()[-1] != 1) return Backend::kMath;
  // check_batch_size_and_num_heads_dense: without enable_gqa no fused kernel broadcasts heads.
  if (!gqa && v.size(1) != q.size(1)) return Backend::kMath;
  const int64_t head_dim = q.size(-1);
  const bool half = IsHalf(q.dtype());
  const bool same_head_dim = head_dim == v.size(-1);
  // check_attn_mask_shape: cuDNN computes no gradient of the mask.
  const bool prefers_cudnn =
      (gpu.compute_major == 9 || gpu.compute_major == 10) && !mask.requires_grad();
  if (prefers_cudnn && half && head_dim % 8 == 0 && head_dim <= 256 && v.size(-1) % 8 == 0) {
    return Backend::kCudnn;
  }
  if (half && gpu.compute_major >= 8 && !mask.defined() && head_dim <= 256 && same_head_dim) {
    return Backend::kFlash;
  }
  const int64_t alignment = half && gpu.compute_major >= 8 ? 8 : 4;
  const bool dtype_ok = q.dtype() != DType::kBFloat16 || gpu.compute_major >= 8;
  // Memory-efficient attention does not take grouped heads.
  if (!gqa && dtype_ok && gpu.compute_major >= 5 && head_dim % alignment == 0 &&
      v.size(-1) % alignment == 0) {
    return Backend::kEfficient;
  }
  return Backend::kMath;
}

// A tensor of `shape` laid out as `like` is: its dimensions in the same order, packed.
Tensor EmptyInLayoutOf(const Tensor& like, const Shape& shape) {
  std::vector<int> order;
  for (int dim = 0; dim < like.rank(); ++dim) order.push_back(dim);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return like.strides()[a] > like.strides()[b]; });
  Shape strides = shape;
  int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[*dim] = stride;
    stride *= shape[*dim];
  }
  return EmptyStrided(like.runtime(), shape, strides, like.dtype());
}

Shape OutputShape(const Tensor& q, const Tensor& v) {
  Shape shape = q.shape();
  shape[-1] = v.size(-1);
  return shape;
}

// Every backend saves its inputs, output and statistics.
struct Saved {
  SavedTensor q, k, v;
  SavedTensor mask{};
  bool mask_wants_gradient = false;
  SavedTensor out{};
  SavedTensor statistics{};
  SavedTensor seed{};
  SavedTensor offset{};
  double flops = 0;  // of the forward
};

// Two products a pair of query and key. Under a causal mask the kernels leave out the pairs that
// it hides.
double AttentionFlops(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  const auto keys = static_cast<double>(k.size(2));
  const double visible = causal && q.size(2) == k.size(2) ? (keys + 1) / 2 : keys;
  const auto rows = static_cast<double>(q.size(0) * q.size(1) * q.size(2));
  return 2 * rows * visible * static_cast<double>(q.size(3) + v.size(3));
}

// `bias` is the mask where it wants a gradient, else undefined.
using BackwardKernel = Grads (*)(const Tensor& grad, const Tensor& q, const Tensor& k,
                                 const Tensor& v, const Tensor& out, const Tensor& bias);

// Connects `out`; `kernel` makes dq, dk, dv and, where wanted, the gradient of the mask.
Tensor FinishFused(GradRecorder& record, Tensor out, Saved saved, BackwardKernel kernel) {
  saved.out = record.SaveOutput(out);
  return record.Finish(std::move(out), [saved, kernel](Grads& grads) -> Grads {
    const Tensor q = saved.q.Unpack();
    const Tensor k = saved.k.Unpack();
    const Tensor v = saved.v.Unpack();
    const Tensor mask = saved.mask.defined() ? saved.mask.Unpack() : Tensor();
    const Tensor out_value = saved.out.Unpack();
    const Tensor statistics = saved.statistics.Unpack();
    const Tensor seed = saved.seed.defined() ? saved.seed.Unpack() : Tensor();
    const Tensor offset = saved.offset.defined() ? saved.offset.Unpack() : Tensor();
    Grads made = kernel(grads[0], q, k, v, out_value, saved.mask_wants_gradient ? mask : Tensor());
    // Five products for the forward's two: the scores again, and the gradients of all operands.
    ReportContraction("aten::_scaled_dot_product_attention_backward", 2.5 * saved.flops,
                      {grads[0], q, k, v, mask, out_value, statistics},
                      {made[0], made[1], made[2]});
    return made;
  });
}

// cuDNN's own scratch beyond what its graphs name (run_cudnn_SDP_fprop/bprop, cuDNN 9.19 on
// Hopper, read off recorded traces): 256 B.
constexpr int64_t kCudnnWorkspace = 256;

Grads CudnnBackward(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&,
                    const Tensor&) {
  Tensor dq = EmptyLike(q);
  Tensor dk = EmptyLike(k);
  Tensor dv = EmptyLike(v);
  // dQ accumulated in fp32, the row sums of the softmax, and for grouped heads dK and dV of every
  // query head. Since cuDNN 9.5.2 the gradient need not be laid out as the output.
  const int64_t rows = q.size(0) * q.size(1) * q.size(2);
  int64_t bytes = rows * q.size(3) * 4 + rows * 4 + kCudnnWorkspace;
  if (k.size(1) != q.size(1)) {
    const int64_t key_rows = k.size(0) * q.size(1) * k.size(2);
    bytes += key_rows * (k.size(3) + v.size(3)) * ElementSize(k.dtype());
  }
  const Ref<Storage> workspace = q.runtime().Scratch(bytes);
  return {dq, dk, dv};
}

Tensor CudnnAttention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                      bool causal) {
  Runtime& runtime = q.runtime();
  GradRecorder record(runtime, "ScaledDotProductCudnnAttentionBackward0", {q, k, v});
  Saved saved{record.Save(q), record.Save(k), record.Save(v)};
  if (mask.defined()) saved.mask = record.Save(mask);
  const OpScope op(runtime, "aten::_scaled_dot_product_cudnn_attention");
  // Philox seed and offset, int64 each.
  Tensor seed = Empty(runtime, {}, DType::kInt64);
  Tensor offset = Empty(runtime, {}, DType::kInt64);
  Tensor out = EmptyInLayoutOf(q, OutputShape(q, v));
  Tensor statistics;
  if (record.active()) {
    statistics = Empty(runtime, {q.size(0), q.size(1), q.size(2), 1}, DType::kFloat32);
  }
  { const Ref<Storage> workspace = runtime.Scratch(kCudnnWorkspace); }
  saved.flops = AttentionFlops(q, k, v, causal);
  ReportContraction("aten::_scaled_dot_product_cudnn_attention", saved.flops, {q, k, v, mask},
                    {out, statistics});
  if (!record.active()) return out;
  saved.statistics = record.SaveOutput(statistics);
  saved.seed = record.SaveOutput(seed);
  saved.offset = record.SaveOutput(offset);
  return FinishFused(record, std::move(out), std::move(saved), CudnnBackward);
}

Grads FlashBackward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& out, const Tensor&) {
  Runtime& runtime = q.runtime();
  Tensor matching = grad;
  if (grad.strides()[-1] != 1) matching = EmptyInLayoutOf(out, grad.shape());
  Tensor dq = EmptyLike(q);
  Tensor dk = EmptyLike(k);
  Tensor dv = EmptyLike(v);
  // mha_bwd: softmax_d, the fp32 accumulator of dQ, and for grouped heads dK and dV of every head.
  const int64_t rows = RoundUpTo(q.size(2), 128);
  const int64_t head_dim = RoundUpTo(q.size(3), q.size(3) <= 128 ? 32 : 64);
  const Ref<Storage> softmax_d = runtime.Scratch(q.size(0) * q.size(1) * rows * 4);
  const Ref<Storage> dq_accum = runtime.Scratch(q.size(0) * rows * q.size(1) * head_dim * 4);
  Ref<Storage> dk_expanded;
  Ref<Storage> dv_expanded;
  if (k.size(1) != q.size(1)) {
    const int64_t bytes = k.size(0) * k.size(2) * q.size(1) * k.size(3) * ElementSize(k.dtype());
    dk_expanded = runtime.Scratch(bytes);
    dv_expanded = runtime.Scratch(bytes);
  }
  return {dq, dk, dv};
}

Tensor FlashAttention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  Runtime& runtime = q.runtime();
  GradRecorder record(runtime, "ScaledDotProductFlashAttentionBackward0", {q, k, v});
  Saved saved{record.Save(q), record.Save(k), record.Save(v)};
  const OpScope op(runtime, "aten::_scaled_dot_product_flash_attention");
  Tensor out = EmptyInLayoutOf(q, OutputShape(q, v));
  Tensor statistics = Empty(runtime, {q.size(0), q.size(1), q.size(2)}, DType::kFloat32);
  Tensor rng_state = Empty(runtime, {2}, DType::kInt64);
  Tensor unused = Empty(runtime, {}, DType::kInt64);
  saved.flops = AttentionFlops(q, k, v, causal);
  ReportContraction("aten::_scaled_dot_product_flash_attention", saved.flops, {q, k, v},
                    {out, statistics});
  if (!record.active()) return out;
  saved.statistics = record.SaveOutput(statistics);
  saved.seed = record.SaveOutput(rng_state);
  saved.offset = record.SaveOutput(unused);
  return FinishFused(record, std::move(out), std::move(saved), FlashBackward);
}

// A tensor shaped as the bias, its rows padded to 16 elements: what the kernel loads is aligned.
Tensor EmptyPadded(const Tensor& bias) {
  Shape shape = bias.shape();
  shape[-1] = RoundUpTo(shape[-1], 16);
  const Tensor padded = Empty(bias.runtime(), shape, bias.dtype());
  return Slice(padded, -1, 0, bias.size(-1));
}

// preprocess_mask: padded where its rows are no multiple of 16 elements, and seen by every head.
Tensor ExpandMask(const Tensor& mask, const Tensor& q, const Tensor& k) {
  const Tensor aligned = mask.size(-1) % 16 == 0 ? mask : EmptyPadded(mask);
  return Expand(aligned, {q.size(0), q.size(1), q.size(2), k.size(2)});
}

Grads EfficientBackward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor&, const Tensor& bias) {
  Runtime& runtime = q.runtime();
  Tensor dq = EmptyInLayoutOf(Transpose(q, 1, 2), Transpose(q, 1, 2).shape());
  Tensor dk = EmptyInLayoutOf(Transpose(k, 1, 2), Transpose(k, 1, 2).shape());
  Tensor dv = EmptyInLayoutOf(Transpose(v, 1, 2), Transpose(v, 1, 2).shape());
  Tensor grad_bias;
  if (bias.defined()) grad_bias = EmptyPadded(bias);
  const int64_t rows = q.size(0) * q.size(1) * q.size(2);
  Ref<Storage> delta;
  if (IsHalf(q.dtype())) {
    delta = runtime.Scratch(rows * 4);  // computed inside the kernel
  } else {
    // (grad_out.to(float) * out.to(float)).sum(-1).transpose(-2, -1).contiguous()
    const Ref<Storage> product = runtime.Scratch(grad.numel() * 4);
    const Ref<Storage> sum = runtime.Scratch(rows * 4);
    delta = runtime.Scratch(rows * 4);
  }
  // The keys are split over blocks, which meet in an accumulator of dQ (AttentionBackwardKernel::
  // workspace_size): per block of 64 queries a lock of 16 B and 64 x head_dim in fp32.
  constexpr int64_t kBlock = 64;
  const int64_t blocks = RoundUpTo(q.size(2), kBlock) / kBlock;
  const int64_t accumulator = 16 + kBlock * RoundUpTo(q.size(3), kBlock) * 4;
  const Ref<Storage> workspace = runtime.Scratch(q.size(0) * q.size(1) * blocks * accumulator);
  return {Transpose(dq, 1, 2), Transpose(dk, 1, 2), Transpose(dv, 1, 2), grad_bias};
}

Tensor EfficientAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const Tensor& given_mask, bool causal) {
  Runtime& runtime = q.runtime();
  const Tensor mask = given_mask.defined() ? ExpandMask(given_mask, q, k) : Tensor();
  GradRecorder record(runtime, "ScaledDotProductEfficientAttentionBackward0", {q, k, v, mask});
  Saved saved{record.Save(q), record.Save(k), record.Save(v)};
  if (mask.defined()) saved.mask = record.Save(mask);
  saved.mask_wants_gradient = record.Needs(3);
  const OpScope op(runtime, "aten::_scaled_dot_product_efficient_attention");
  // The kernel works on [batch, sequence, heads, head_dim].
  Tensor packed = Empty(runtime, {q.size(0), q.size(2), q.size(1), v.size(3)}, q.dtype());
  constexpr int64_t kAlignLse = 32;
  const int64_t lse_rows = record.active() ? RoundUpTo(q.size(2), kAlignLse) : 0;
  Tensor statistics = Empty(runtime, {q.size(0), q.size(1), lse_rows}, DType::kFloat32);
  Tensor out;
  {
    const Scoped recording(runtime.grad_enabled, false);
    out = Transpose(packed, 1, 2);
  }
  saved.flops = AttentionFlops(q, k, v, causal);
  ReportContraction("aten::_scaled_dot_product_efficient_attention", saved.flops,
                    {q, k, v, given_mask}, {out, statistics});
  if (!record.active()) return out;
  saved.statistics = record.SaveOutput(statistics);
  return FinishFused(record, std::move(out), std::move(saved), EfficientBackward);
}

}  // namespace

Tensor AdditiveMask(const Tensor& mask, DType dtype) {
  if (!mask.defined() || mask.dtype() != DType::kBool) return mask;
  Runtime& runtime = mask.runtime();
  const Scoped kind(runtime.kind, Kind::kPosition);
  const Tensor lowest = Empty(runtime, {}, dtype);
  const Tensor zero = Empty(runtime, {}, dtype);
  const Tensor inputs[] = {mask, zero, lowest};
  return Elementwise("aten::where", inputs, dtype);
}

Tensor ScaledDotProductAttention(const Tensor& query, const Tensor& key, const Tensor& value,
                                 const Tensor& given_mask, const SdpaOptions& options) {
  const Tensor cast_mask = AutocastToLower(given_mask);
  const Tensor v = AutocastToLower(value);
  const Tensor k = AutocastToLower(key);
  const Tensor q = AutocastToLower(query);
  const Tensor mask = AdditiveMask(cast_mask, q.dtype());
  switch (ChooseBackend(q.runtime().platform().gpu, q, v, mask, options.enable_gqa)) {
    case Backend::kCudnn:
      return CudnnAttention(q, k, v, mask, options.is_causal);
    case Backend::kFlash:
      return FlashAttention(q, k, v, options.is_causal);
    case Backend::kEfficient:
      return EfficientAttention(q, k, v, mask, options.is_causal);
    case Backend::kMath:
      return MathAttention(q, k, v, mask, options);
  }
  HEADROOM_CHECK(false, "unknown attention backend");
  return Tensor();
}

}  // namespace headroom::predict
