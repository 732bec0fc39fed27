// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/cpu/cpu_ops.h"
#include "engine/cpu/operands.h"
#include "engine/cpu/parallel.h"

namespace headroom::engine::cpu {
namespace {

constexpr int64_t kSegments = 512;
constexpr int64_t kLeastSegment = 1 << 14;

// A gradient as one row.
TensorView Flat(const TensorView& tensor) {
  TensorView flat = tensor;
  flat.shape = Shape{tensor.shape.NumElements()};
  flat.row_stride = 0;
  return flat;
}

FiniteSquares SegmentSum(const TensorView& gradient, int64_t start, int64_t end) {
  FiniteSquares sum;
  Chunk buffer;
  for (int64_t i = start; i < end; i += kChunk) {
    const int64_t n = std::min(kChunk, end - i);
    const FiniteSquares part = Kernels().finite_squares(Read(gradient, 0, i, n, buffer), n);
    sum.sum += part.sum;
    sum.not_finite += part.not_finite;
  }
  return sum;
}

}  // namespace

// Segments depend on a gradient's size alone, and are added in their order.
void RunGradNorm(const OpCall& call) {
  FiniteSquares total;
  for (const TensorView& tensor : call.inputs) {
    if (!tensor) continue;
    const TensorView gradient = Flat(tensor);
    const int64_t n = gradient.cols();
    const int64_t segment = std::max(kLeastSegment, (n + kSegments - 1) / kSegments);
    const int64_t count = (n + segment - 1) / segment;
    FiniteSquares sums[kSegments];
    ParallelFor(count, segment, [&](int64_t i) {
      sums[i] = SegmentSum(gradient, i * segment, std::min(n, (i + 1) * segment));
    });
    for (int64_t i = 0; i < count; ++i) {
      total.sum += sums[i].sum;
      total.not_finite += sums[i].not_finite;
    }
  }
  float* norm = Operand(call.outputs, 0).As<float>();
  norm[0] = static_cast<float>(total.sum);
  norm[1] = static_cast<float>(total.not_finite);
}

}  // namespace headroom::engine::cpu
