// SPDX-License-Identifier: Apache-2.0
//
// OpCall: one op of a graph with the addresses its operands have in the arena. What a backend's
// kernels see, and all they see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/shape.h"
#include "graph/op.h"

namespace headroom::engine {

// Bytes with a type and a shape. An absent operand has no data.
struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::kFloat32;
  Shape shape;
  int64_t row_stride = 0;  // elements; 0 is the size of the last dimension

  explicit operator bool() const { return data != nullptr; }
  int64_t cols() const { return shape.rank() == 0 ? 1 : shape[-1]; }
  int64_t rows() const { return cols() == 0 ? 0 : shape.NumElements() / cols(); }
  int64_t stride() const { return row_stride == 0 ? cols() : row_stride; }
  template <typename T>
  T* As() const {
    return reinterpret_cast<T*>(data);
  }
};

// What changes from step to step. On a GPU it lies in device memory, so that a captured graph reads
// the newest values.
struct StepScalars {
  uint64_t seed = 0;    // of the run's dropout
  int64_t step = 1;     // optimizer steps, the current one included
  int64_t skipped = 0;  // of those before: whose gradients overflowed, so that they changed nothing
  int32_t micro_step =
      0;  // in the window of gradient accumulation; 0 writes gradients, later ones add
  bool training = true;  // false: no dropout, no gradient
  // On a device, which the host reads a step late: when the loss or a gradient is not finite, this
  // update and all behind it change nothing, so that the weights are still those of this step.
  bool halt = false;
  float loss_scale = 1;
  float targets = 1;  // target tokens (or samples) of the whole window: what the loss is divided by
  float learning_rate = 0;
  float max_grad_norm = 0;  // 0: no clipping
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float adam_eps = 1e-8F;
};

struct OpCall {
  graph::OpKind kind{};
  const graph::OpAttributes& attributes;
  std::span<const TensorView> inputs;
  std::span<const TensorView> outputs;
  std::span<const TensorView> scratch;
  const StepScalars& step;
};

}  // namespace headroom::engine
