// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "predict/autograd.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

// cub::AliasTemporaries: pieces are rounded to 256 B each, and 255 B are added to align the first.
int64_t CubTemporaries(std::initializer_list<int64_t> pieces) {
  int64_t total = 255;
  for (const int64_t piece : pieces) total += (piece + 255) / 256 * 256;
  return total;
}

constexpr int64_t kInt64 = 8;

// cub::DeviceRadixSort::SortPairs of n int64 keys and values, one-sweep: histograms of the 8 digit
// places, look-back state of each tile, a second buffer of keys and of values, and counters.
int64_t RadixSortScratch(int64_t n) {
  constexpr int64_t kDigits = 256;
  constexpr int64_t kPasses = 8;
  constexpr int64_t kTile = 4608;  // 384 threads, 12 pairs of 16 B each
  const int64_t tiles = (n + kTile - 1) / kTile;
  return CubTemporaries(
      {kPasses * kDigits * kInt64, tiles * kDigits * 4, n * kInt64, n * kInt64, kPasses * 4});
}

// The tile states of cub's scan and select over n elements, and an empty second allocation; the
// tile is read off recorded traces at n = 4096 (1,279 B) and 262144 (2,047 B).
int64_t ScanScratch(int64_t n) {
  constexpr int64_t kPadding = 32;  // TILE_STATUS_PADDING
  constexpr int64_t kTile = 4608;
  return CubTemporaries({((n + kTile - 1) / kTile + kPadding) * 16, 1});
}

// embedding_dense_backward_cuda and embedding_backward_cuda_kernel, PyTorch 2.11.0: few indices are
// added directly; more are sorted and their rows summed in segments of at most 10.
Tensor EmbeddingDenseBackward(const Tensor& grad, const Tensor& given_indices, int64_t rows) {
  constexpr int64_t kDirectLimit = 3072;
  constexpr int64_t kRowsPerThread = 10;  // NROWS_PER_THREAD
  constexpr int64_t kWarp = 32;
  Runtime& runtime = grad.runtime();
  const Tensor indices = Contiguous(given_indices);
  const Tensor contiguous = Contiguous(grad);
  const int64_t width = grad.size(-1);
  const int64_t n = indices.numel();
  const auto report = [&] {
    // Rows of the gradient are added where they belong; the zeros before are a kernel of their own.
    ReportMap("aten::embedding_dense_backward", {contiguous, indices, contiguous}, {contiguous}, 1);
  };
  if (n <= kDirectLimit) {
    Tensor grad_weight = Zeros(runtime, {rows, width}, grad.dtype());
    report();
    return grad_weight;
  }

  const Ref<Storage> sorted = runtime.Scratch(n * kInt64);
  const Ref<Storage> original = runtime.Scratch(n * kInt64);
  {
    const Ref<Storage> range = runtime.Scratch(n * kInt64);
    const Ref<Storage> sort = runtime.Scratch(RadixSortScratch(n));
  }
  Tensor grad_weight = Zeros(runtime, {rows, width}, grad.dtype());
  const Ref<Storage> segment_offsets = runtime.Scratch(n * kInt64);
  const Ref<Storage> segment_count = runtime.Scratch(kInt64);
  {
    const Ref<Storage> unique_keys = runtime.Scratch(n * kInt64);
    const Ref<Storage> select = runtime.Scratch(ScanScratch(n));
  }
  // max_segments: no more of them than rows of the table.
  const int64_t most_segments = std::min(n, rows);
  const Ref<Storage> partials = runtime.Scratch(most_segments * kInt64);
  const Ref<Storage> partial_offsets = runtime.Scratch(most_segments * kInt64);
  { const Ref<Storage> scan = runtime.Scratch(ScanScratch(most_segments)); }
  const Ref<Storage> partial_count = runtime.Scratch(kInt64);
  const int64_t most_partials = n / kRowsPerThread + most_segments;
  const Ref<Storage> partial_segments = runtime.Scratch(most_partials * kInt64);
  const int64_t accumulator = std::max<int64_t>(ElementSize(grad.dtype()), 4);
  // Narrow tables (recorded: 8 and 12 columns) keep an index a partial segment in place of its sum.
  const int64_t partial_bytes = width < kWarp ? kInt64 : width * accumulator;
  const Ref<Storage> sums = runtime.Scratch(most_partials * partial_bytes);
  report();
  return grad_weight;
}

// Operations an element: the maximum, its subtraction, exp, the sum, the division; backward a sum
// of products, a subtraction and a product.
constexpr double kSoftmaxFlops = 5;
constexpr double kSoftmaxBackwardFlops = 4;
// Of layer norm: mean 1, variance 3, normalising 2, scale and shift 2; backward twice as much.
constexpr double kLayerNormFlops = 8;

// _softmax or _log_softmax: the result is saved; backward makes one tensor of the input's dtype,
// and softmax's (softmax_backward_cuda_out) holds grad * output meanwhile.
enum class SoftmaxForm { kPlain, kLog };
Tensor SoftmaxKernel(SoftmaxForm form, const Tensor& x, DType dtype, Kind kind) {
  const bool plain = form == SoftmaxForm::kPlain;
  const Scoped of_kind(x.runtime().kind, kind);
  GradRecorder record(x.runtime(), plain ? "SoftmaxBackward0" : "LogSoftmaxBackward0", {x});
  const OpScope op(x.runtime(), plain ? "aten::_softmax" : "aten::_log_softmax");
  Tensor result = Empty(x.runtime(), x.shape(), dtype);
  const SavedTensor saved = record.SaveOutput(result);
  const DType input_dtype = x.dtype();
  ReportNormalization(plain ? "aten::_softmax" : "aten::_log_softmax", {x}, {result},
                      kSoftmaxFlops);
  return record.Finish(std::move(result), [saved, input_dtype, plain](Grads& grads) -> Grads {
    const Tensor output = saved.Unpack();
    const Tensor grad = Contiguous(grads[0]);
    Tensor grad_input = EmptyLike(output, input_dtype);
    if (plain) {
      const Tensor product = EmptyLike(grad);
      ReportMap("aten::mul", {grad, output}, {product});
      ReportNormalization("aten::_softmax_backward_data", {product, output}, {grad_input},
                          kSoftmaxBackwardFlops);
    } else {
      ReportNormalization("aten::_log_softmax_backward_data", {grad, output}, {grad_input},
                          kSoftmaxBackwardFlops);
    }
    return {grad_input};
  });
}

// nll_loss on [rows, classes]; in autocast's fp32 list.
Tensor NllLoss(const Tensor& input, const Tensor& target) {
  const Tensor log_probabilities = AutocastToFloat(input);
  Runtime& runtime = log_probabilities.runtime();
  GradRecorder record(runtime, "NllLossBackward0", {log_probabilities});
  const SavedTensor saved_input = record.Save(log_probabilities);
  const SavedTensor saved_target = record.Save(target);
  const OpScope op(runtime, "aten::nll_loss");
  Tensor loss = Empty(runtime, {}, log_probabilities.dtype());
  const Tensor weight_result = Empty(runtime, {}, log_probabilities.dtype());
  const SavedTensor total_weight = record.SaveOutput(weight_result);
  ReportNormalization("aten::nll_loss", {target, target}, {loss}, 1);
  return record.Finish(std::move(loss), [=](Grads&) -> Grads {
    const Tensor values = saved_input.Unpack();
    const Tensor targets = saved_target.Unpack();
    const Tensor weight = total_weight.Unpack();
    Tensor grad_input = EmptyLike(values);
    ReportMap("aten::nll_loss_backward", {targets}, {grad_input}, 0);
    return {grad_input};
  });
}

}  // namespace

Tensor EmbeddingOp(const Tensor& weight, const Tensor& indices) {
  Runtime& runtime = weight.runtime();
  GradRecorder record(runtime, "EmbeddingBackward0", {weight});
  const SavedTensor saved = record.Save(indices);
  const OpScope op(runtime, "aten::embedding");
  Shape shape = indices.shape();
  shape.Append(weight.size(1));
  Tensor out;
  {
    const Scoped recording(runtime.grad_enabled, false);
    const Tensor flat = indices.rank() == 1 ? indices : Reshape(indices, {-1});
    out = Empty(runtime, shape, weight.dtype());
  }
  // The rows that are looked up, not the table.
  ReportMap("aten::embedding", {indices, out}, {out});
  const int64_t rows = weight.size(0);
  return record.Finish(std::move(out), [saved, rows](Grads& grads) -> Grads {
    return {EmbeddingDenseBackward(grads[0], saved.Unpack(), rows)};
  });
}

// expect_contiguous: `x` itself where it is packed, else a copy that no gradient flows through.
Tensor Packed(const Tensor& x) {
  const Scoped no_grad(x.runtime().grad_enabled, false);
  return Contiguous(x);
}

Tensor LayerNormOp(const Tensor& input, const Tensor& full_weight, const Tensor& full_bias) {
  Runtime& runtime = input.runtime();
  const Scoped of_kind(runtime.kind, Kind::kNorm);
  const Tensor bias = AutocastToFloat(full_bias);
  const Tensor weight = AutocastToFloat(full_weight);
  const Tensor x = AutocastToFloat(input);
  GradRecorder record(runtime, "NativeLayerNormBackward0", {x, weight, bias});
  const SavedTensor saved_x = record.Save(x);
  const SavedTensor saved_weight = weight.defined() ? record.Save(weight) : SavedTensor();
  const SavedTensor saved_bias = bias.defined() ? record.Save(bias) : SavedTensor();
  const OpScope op(runtime, "aten::native_layer_norm");
  const int64_t rows = x.numel() / x.size(-1);
  // The kernel reads packed rows.
  const Tensor packed = Packed(x);
  Tensor out = Empty(runtime, x.shape(), x.dtype());
  // Statistics are kept in the accumulation type, fp32 for every floating type up to it.
  const Tensor mean_result = Empty(runtime, {rows, 1}, DType::kFloat32);
  const Tensor rstd_result = Empty(runtime, {rows, 1}, DType::kFloat32);
  const SavedTensor mean = record.SaveOutput(mean_result);
  const SavedTensor rstd = record.SaveOutput(rstd_result);
  ReportNormalization("aten::native_layer_norm", {x, weight, bias}, {out, mean_result, rstd_result},
                      kLayerNormFlops);
  const bool needs_x = record.Needs(0);
  const bool needs_weight = weight.defined() && record.Needs(1);
  const bool needs_bias = bias.defined() && record.Needs(2);
  return record.Finish(std::move(out), [=](Grads& grads) -> Grads {
    const Tensor x_value = saved_x.Unpack();
    const Tensor weight_value = saved_weight.defined() ? saved_weight.Unpack() : Tensor();
    const Tensor bias_value = saved_bias.defined() ? saved_bias.Unpack() : Tensor();
    const Tensor mean_value = mean.Unpack();
    const Tensor rstd_value = rstd.Unpack();
    const Tensor grad = Contiguous(grads[0]);
    const Tensor packed_x = Packed(x_value);
    Grads out_grads(3);
    if (needs_x) out_grads[0] = Empty(grad.runtime(), x_value.shape(), x_value.dtype());
    if (needs_weight) out_grads[1] = EmptyLike(weight_value);
    if (needs_bias) out_grads[2] = EmptyLike(weight_value);
    ReportNormalization("aten::native_layer_norm_backward",
                        {x_value, grad, weight_value, mean_value, rstd_value},
                        {out_grads[0], out_grads[1], out_grads[2]}, 2 * kLayerNormFlops);
    return out_grads;
  });
}

Tensor Dropout(const Tensor& x, double probability) {
  if (probability == 0 || x.numel() == 0 || !x.runtime().training) return x;
  Runtime& runtime = x.runtime();
  GradRecorder record(runtime, "NativeDropoutBackward0", {x});
  const OpScope op(runtime, "aten::native_dropout");
  Tensor mask;
  {
    const Scoped of_kind(runtime.kind, Kind::kDropoutMask);
    mask = EmptyLike(x, DType::kBool);
  }
  const Scoped of_kind(runtime.kind,
                       runtime.kind == Kind::kAttentionScores ? runtime.kind : Kind::kDropout);
  Tensor out = EmptyLike(x);
  const SavedTensor saved = record.SaveOutput(mask);
  ReportMap("aten::native_dropout", {x}, {out, mask});
  return record.Finish(std::move(out), [saved](Grads& grads) -> Grads {
    const Tensor kept = saved.Unpack();
    Tensor grad_input = EmptyLike(grads[0]);
    ReportMap("aten::native_dropout_backward", {grads[0], kept}, {grad_input});
    return {grad_input};
  });
}

Tensor Softmax(const Tensor& input, std::optional<DType> dtype) {
  // Autocast's fp32 list sets the dtype only where the caller did not.
  const Tensor x = dtype ? input : AutocastToFloat(input);
  const Kind kind = Kind::kAttentionScores;
  if (!dtype || *dtype == x.dtype()) {
    return SoftmaxKernel(SoftmaxForm::kPlain, x, x.dtype(), kind);
  }
  // at::softmax on CUDA converts fp16 inside the kernel; other types are cast first.
  if (x.dtype() == DType::kFloat16 && *dtype == DType::kFloat32) {
    return SoftmaxKernel(SoftmaxForm::kPlain, x, *dtype, kind);
  }
  return SoftmaxKernel(SoftmaxForm::kPlain, ToCopy(x, *dtype), *dtype, kind);
}

Tensor CrossEntropy(const Tensor& logits, const Tensor& targets) {
  // cross_entropy_loss names the input's own dtype, so that autocast leaves log_softmax in it.
  const Tensor log_probabilities =
      SoftmaxKernel(SoftmaxForm::kLog, logits, logits.dtype(), Kind::kLogitsLoss);
  const Scoped of_kind(logits.runtime().kind, Kind::kLogitsLoss);
  return NllLoss(log_probabilities, targets);
}

}  // namespace headroom::predict
