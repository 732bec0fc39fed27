// SPDX-License-Identifier: Apache-2.0
//
// VectorKernels: the loops over float32 that make up the run time, once per instruction set.
//
// The same source (vector_*.inc) is compiled for what every x86-64 has, for AVX2 with FMA, and for
// AVX-512; the best one that this processor runs is chosen at start. All see float32 only: 16-bit
// tensors pass through `load` and `store` a chunk at a time. No kernel allocates or starts threads,
// and none needs a multiple of anything unless it says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "engine/cpu/dropout.h"
#include "engine/stochastic_rounding.h"
#include "graph/op.h"

namespace headroom::engine::cpu {

enum class VectorLevel : uint8_t { kBaseline, kAvx2, kAvx512 };

struct AdamFactors {
  float gradient_scale = 1;  // unscaling and clipping
  float l2 = 0;              // Adam's weight decay: added to the gradient, times the weight
  float decay = 1;           // AdamW's: the weight is multiplied with it first
  float beta1 = 0;
  float beta2 = 0;
  float step_size = 0;           // learning rate / (1 - beta1^t)
  float inverse_correction = 1;  // 1 / sqrt(1 - beta2^t)
  float eps = 0;
};

struct NormSums {
  float gradient = 0;   // of dy * gamma
  float projected = 0;  // of dy * gamma * normalised x
};

struct FiniteSquares {
  double sum = 0;  // of squares, of what is finite
  int64_t not_finite = 0;
};

struct VectorKernels {
  VectorLevel level{};

  // float32 from and to `dtype`: float32, float16 or bfloat16.
  void (*load)(const std::byte* from, DType dtype, int64_t n, float* to);
  void (*store)(const float* from, int64_t n, DType dtype, std::byte* to);

  // Matrix products. A panel of the left operand is [k][lanes], of which `tile_rows` are used; one
  // of the right operand is [k][tile_columns].
  int lanes = 0;
  int tile_rows = 0;
  int tile_columns = 0;
  // to[p * to_stride + r] = from(r, p) for r < lanes, 0 from `rows` on. One stride must be 1.
  void (*pack)(const std::byte* from, DType dtype, int64_t row_stride, int64_t column_stride,
               int64_t rows, int64_t k, float* to, int64_t to_stride);
  // c[rows, columns] (+)= left panel * right panel; at most one tile.
  void (*multiply_panels)(int64_t k, const float* left, const float* right, float* c, int64_t ldc,
                          int64_t rows, int64_t columns, bool add);
  // c[m, n] (+)= a[m, k] * b[k, n]; a by strides, b and c by rows. REQUIRES: n % 16 == 0.
  void (*multiply)(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row, int64_t a_column,
                   const float* b, int64_t ldb, float* c, int64_t ldc, bool add);
  // to[c * to_stride + r] = from[r * from_stride + c]
  void (*transpose)(const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                    float* to, int64_t to_stride);

  // Reductions, in an order that depends on n alone.
  float (*sum)(const float* x, int64_t n);
  float (*max)(const float* x, int64_t n);  // -infinity for n == 0
  float (*largest_magnitude)(const float* x, int64_t n);
  float (*dot)(const float* x, const float* y, int64_t n);
  float (*squares_about)(const float* x, float center, int64_t n);
  FiniteSquares (*finite_squares)(const float* x, int64_t n);

  // Element-wise; y may be x.
  void (*add)(const float* a, const float* b, int64_t n, float* y);
  void (*multiply_rows)(const float* a, const float* b, int64_t n, float* y);
  void (*scale)(const float* x, float factor, int64_t n, float* y);
  void (*add_scaled)(const float* x, float factor, int64_t n, float* y);  // y += factor * x
  void (*add_ramp)(float start, float slope, int64_t n, float* y);        // y[i] += start + slope*i
  // y = exp(x - shift); returns the sum.
  float (*exp_sum)(const float* x, float shift, int64_t n, float* y);
  // The sum of exp(x - shift), alone.
  float (*sum_exp)(const float* x, float shift, int64_t n);
  // y = factor * (exp(x - shift) - rest)
  void (*softmax_gradient)(const float* x, float shift, float rest, float factor, int64_t n,
                           float* y);
  // p * (dp - delta)
  void (*score_gradient)(const float* p, const float* dp, float delta, int64_t n, float* ds);
  void (*activation)(graph::ActivationKind kind, const float* x, int64_t n, float* y);
  void (*activation_gradient)(graph::ActivationKind kind, const float* dy, const float* x,
                              int64_t n, float* dx);
  // (cos, sin) turn the pairs (first[i], second[i]).
  void (*rotate)(const float* cosine, const float* sine, float direction, int64_t n, float* first,
                 float* second);
  // What elements first … first + n - 1 are multiplied with.
  void (*dropout)(const DropoutMask& mask, uint64_t first, int64_t n, float* factors);
  // To bfloat16, elements first … first + n - 1. REQUIRES: first % 8 == 0.
  void (*round_stochastically)(const StochasticRounding& rounding, uint64_t first, const float* x,
                               int64_t n, std::byte* to);

  // y = (x - mean) * rstd * gamma + beta; beta may be null.
  void (*normalise)(const float* x, float mean, float rstd, const float* gamma, const float* beta,
                    int64_t n, float* y);
  NormSums (*norm_sums)(const float* dy, const float* x, float mean, float rstd, const float* gamma,
                        int64_t n);
  // dx = rstd * (dy * gamma - means.gradient - normalised x * means.projected)
  void (*norm_gradient)(const float* dy, const float* x, float mean, float rstd, const float* gamma,
                        NormSums means, int64_t n, float* dx);
  // dgamma += dy * (x - mean) * rstd
  void (*add_normalised)(const float* dy, const float* x, float mean, float rstd, int64_t n,
                         float* dgamma);

  void (*adam)(const AdamFactors& factors, const float* gradient, int64_t n, float* weight,
               float* m, float* v);
};

// The best level this processor runs, or the one chosen last with UseVectorLevel.
const VectorKernels& Kernels();

// The levels this program has and this processor runs, the worst first.
std::span<const VectorLevel> VectorLevels();

// For tests. REQUIRES: the level is one of VectorLevels(), and no op is running.
void UseVectorLevel(VectorLevel level);

}  // namespace headroom::engine::cpu
