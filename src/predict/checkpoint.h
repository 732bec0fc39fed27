// SPDX-License-Identifier: Apache-2.0
//
// torch.utils.checkpoint: run a layer without keeping what backward needs, and run it again then.
//
// Non-reentrant (the default): saved-tensor hooks drop every saved tensor; the first one that
// backward asks for runs the layer again up to its last saved tensor and hands the others out one
// by one. Reentrant: the layer is one autograd node, whose backward runs the layer with gradients
// and then a backward of its own.
#pragma once

#include <functional>
#include <span>

#include "predict/tensor.h"

namespace headroom::predict {

// A layer of one output, of the tensors that are passed to it by position.
using CheckpointedFunction = std::function<Tensor(std::span<const Tensor> inputs)>;

enum class CheckpointKind { kNone, kNonReentrant, kReentrant };

// Runs `function` on `inputs` under the given kind; kNone simply calls it. What `function` captures
// is kept until backward, as Python's closures are.
Tensor Checkpoint(CheckpointKind kind, const CheckpointedFunction& function,
                  std::span<const Tensor> inputs);

// The common case: one hidden state.
Tensor Checkpoint(CheckpointKind kind, const std::function<Tensor(const Tensor&)>& function,
                  const Tensor& hidden);

}  // namespace headroom::predict
