// SPDX-License-Identifier: Apache-2.0
//
// Gemm: c[m, n] (+)= a[m, k] * b[k, n] (+ bias[n]), blocked as by Goto and van de Geijn ("Anatomy
// of High-Performance Matrix Multiplication", TOMS 2008).
//
//   a ──pack──► panels of 14 rows      the sizes are AVX-512's; a block of a, one of b and one of
//   b ──pack──► panels of 32 columns   float32 results lie in buffers of the calling thread
//
// Packing converts 16-bit operands, and turns transposed ones: both are given by strides. Sums are
// float32 over blocks of kGemmDepth, block after block; which thread computes a tile does not
// matter, so the result is the same for every number of threads, and for a k that is cut at a
// multiple of kGemmDepth and given in two calls with `add`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "engine/op_call.h"

namespace headroom::engine::cpu {

inline constexpr int64_t kGemmDepth = 256;

// One of the strides, in elements, is 1.
struct Matrix {
  std::byte* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t row_stride = 0;
  int64_t column_stride = 1;

  static Matrix Of(const TensorView& tensor) {
    return {tensor.data, tensor.dtype, tensor.stride(), 1};
  }
  Matrix Transposed() const { return {data, dtype, column_stride, row_stride}; }
};

struct GemmOptions {
  bool add = false;
  const TensorView* bias = nullptr;  // [n], added once
};

// REQUIRES: k > 0, c.column_stride == 1.
void Gemm(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, const Matrix& c,
          GemmOptions options = {});

}  // namespace headroom::engine::cpu
