// SPDX-License-Identifier: Apache-2.0
//
// Convolutions through cuDNN: aten/src/ATen/native/{Convolution.cpp,cudnn/ConvShared.cpp}, PyTorch
// 2.11.0. cuDNN 9.19's workspaces are read off a recorded trace of ViT's patch projection: the
// engines that it picks for 16-bit NCHW tensors work on copies in NHWC.
#include "base/check.h"
#include "predict/autograd.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

constexpr int64_t kAlignment = 16;  // bytes; of the channels of an NHWC copy, and of a workspace

// The bytes of `x` [batch, channels, …] as an NHWC copy, its channels padded.
int64_t NhwcBytes(const Tensor& x) {
  const int64_t unit = kAlignment / ElementSize(x.dtype());
  const int64_t channels = (x.size(1) + unit - 1) / unit * unit;
  return x.numel() / x.size(1) * channels * ElementSize(x.dtype());
}

// Forward, and the gradient of the input: copies of all three tensors.
int64_t DataWorkspace(const Tensor& x, const Tensor& weight, const Tensor& y) {
  return NhwcBytes(x) + NhwcBytes(weight) + NhwcBytes(y) + kAlignment;
}

// The gradient of the weight: the products are summed by three groups of blocks, each in fp32.
int64_t WeightWorkspace(const Tensor& x, const Tensor& weight, const Tensor& grad) {
  constexpr int64_t kSplits = 3;
  constexpr int64_t kCounters = 128;
  const int64_t of_weight = NhwcBytes(weight);
  const int64_t sums = of_weight / ElementSize(weight.dtype()) * 4;
  return NhwcBytes(x) + NhwcBytes(grad) + of_weight + kSplits * sums + kCounters + kAlignment;
}

// Of each of the three products: every output sums over the weights of its channel.
double FlopsOf(const Tensor& weight, const Tensor& y) {
  const int64_t of_channel = weight.numel() / weight.size(0);
  return 2 * static_cast<double>(y.numel()) * static_cast<double>(of_channel);
}

Grads ConvolutionBackward(const Tensor& grad, const Tensor& x, const Tensor& weight, bool needs_x,
                          bool needs_bias) {
  Runtime& runtime = grad.runtime();
  Grads grads(3);
  {
    const Tensor contiguous = Contiguous(grad);
    if (needs_x) {
      grads[0] = Empty(runtime, x.shape(), x.dtype());
      const Ref<Storage> workspace = runtime.Scratch(DataWorkspace(x, weight, contiguous));
      ReportContraction("aten::cudnn_convolution_backward_input", FlopsOf(weight, grad),
                        {contiguous, weight}, {grads[0]});
    }
    grads[1] = Empty(runtime, weight.shape(), weight.dtype());
    const Ref<Storage> workspace = runtime.Scratch(WeightWorkspace(x, weight, contiguous));
    ReportContraction("aten::cudnn_convolution_backward_weight", FlopsOf(weight, grad),
                      {contiguous, x}, {grads[1]});
  }
  if (needs_bias) {
    const int over[] = {0, 2, 3};
    grads[2] = Sum(grad, std::span(over, static_cast<size_t>(grad.rank() - 1)), false);
  }
  return grads;
}

}  // namespace

Tensor Convolution(const Tensor& input, const Tensor& full_weight, const Tensor& full_bias,
                   int64_t stride, int64_t padding) {
  const Tensor bias = AutocastToLower(full_bias);
  const Tensor weight = AutocastToLower(full_weight);
  const Tensor x = AutocastToLower(input);
  HEADROOM_CHECK(x.rank() == weight.rank() && x.size(1) == weight.size(1),
                 "a convolution over other channels");
  Runtime& runtime = x.runtime();
  GradRecorder record(runtime, "ConvolutionBackward0", {x, weight, bias});
  const SavedTensor saved_x = record.Save(x);
  const SavedTensor saved_weight = record.Save(weight);
  const bool needs_x = record.Needs(0);
  const bool needs_bias = record.Needs(2);
  const OpScope op(runtime, "aten::cudnn_convolution");
  Shape shape = x.shape();
  shape[1] = weight.size(0);
  for (int dim = 2; dim < x.rank(); ++dim) {
    shape[dim] = (x.size(dim) + 2 * padding - weight.size(dim)) / stride + 1;
  }
  Tensor y = Empty(runtime, shape, x.dtype());
  { const Ref<Storage> workspace = runtime.Scratch(DataWorkspace(x, weight, y)); }
  ReportContraction("aten::cudnn_convolution", FlopsOf(weight, y), {x, weight, bias}, {y});
  return record.Finish(std::move(y), [=](Grads& grads) -> Grads {
    return ConvolutionBackward(grads[0], saved_x.Unpack(), saved_weight.Unpack(), needs_x,
                               needs_bias);
  });
}

}  // namespace headroom::predict
