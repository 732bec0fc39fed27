// SPDX-License-Identifier: Apache-2.0
//
// unbind: one view for each index of a dimension, which autograd puts together again by stacking.
// derivatives.yaml and torch/csrc/autograd/FunctionsManual.cpp (unbind_backward), PyTorch 2.11.0.
#include <vector>

#include "predict/autograd.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

// at::stack: unsqueezed views, concatenated.
Tensor Stack(std::span<const Tensor> tensors, int dim) {
  std::vector<Tensor> apart;
  for (const Tensor& tensor : tensors) apart.push_back(Unsqueeze(tensor, dim));
  return Cat(apart, dim);
}

}  // namespace

std::vector<Tensor> Unbind(const Tensor& x, int at) {
  const int dim = at < 0 ? at + x.rank() : at;
  GradRecorder record(x.runtime(), "UnbindBackward0", {x});
  std::vector<Tensor> parts;
  {
    const Scoped recording(x.runtime().grad_enabled, false);
    for (int64_t i = 0; i < x.size(dim); ++i) parts.push_back(Select(x, dim, i));
  }
  std::vector<Tensor*> outputs;
  for (Tensor& part : parts) outputs.push_back(&part);
  const Shape part_shape = parts.front().shape();
  record.Finish(outputs, [part_shape, dim](Grads& grads) -> Grads {
    Tensor given;
    for (const Tensor& grad : grads) {
      if (grad.defined()) given = grad;
    }
    // Parts whose gradient never came are zeros.
    Grads all = grads;
    for (Tensor& grad : all) {
      if (!grad.defined()) grad = Zeros(given.runtime(), part_shape, given.dtype());
    }
    return {Stack(all, dim)};
  });
  return parts;
}

}  // namespace headroom::predict
