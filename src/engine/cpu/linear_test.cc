// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "engine/cpu/op_harness.h"

namespace headroom::engine::cpu {
namespace {

using graph::OpKind;

struct Case {
  int64_t n, k, m;
  DType dtype;
  bool transposed;
  bool bias;
  bool add;
};

size_t At(int64_t row, int64_t columns, int64_t column) {
  return static_cast<size_t>(row * columns + column);
}

Doubles Forward(const Case& c, const Doubles& x, const Doubles& weight, const Doubles& bias) {
  Doubles y;
  for (int64_t row = 0; row < c.n; ++row) {
    for (int64_t out = 0; out < c.m; ++out) {
      double sum = c.bias ? bias[static_cast<size_t>(out)] : 0;
      for (int64_t in = 0; in < c.k; ++in) {
        sum += x[At(row, c.k, in)] * weight[c.transposed ? At(in, c.m, out) : At(out, c.k, in)];
      }
      y.push_back(sum);
    }
  }
  return y;
}

void Check(const Case& c, std::mt19937& random) {
  SCOPED_TRACE(testing::Message() << c.n << "x" << c.k << "x" << c.m << " " << Name(c.dtype)
                                  << c.transposed << c.bias << c.add);
  const Shape weight_shape = c.transposed ? Shape{c.k, c.m} : Shape{c.m, c.k};
  TestTensor x = TestTensor::Random(Shape{c.n, c.k}, c.dtype, random).Spread(c.k + 5);
  TestTensor weight = TestTensor::Random(weight_shape, c.dtype, random);
  TestTensor bias = TestTensor::Random(Shape{c.m}, c.dtype, random);
  TestTensor dy = TestTensor::Random(Shape{c.n, c.m}, c.dtype, random);
  TestTensor y = TestTensor::Random(Shape{c.n, c.m}, c.dtype, random);
  TestTensor dx = TestTensor::Random(Shape{c.n, c.k}, c.dtype, random);
  TestTensor dweight = TestTensor::Random(weight_shape, c.dtype, random);
  TestTensor dbias = TestTensor::Random(Shape{c.m}, c.dtype, random);
  const Doubles none;
  const Doubles old_dx = c.add ? dx.Values() : none;
  const Doubles old_dweight = c.add ? dweight.Values() : none;
  const Doubles old_dbias = c.add ? dbias.Values() : none;
  TestTensor* bias_or_none = c.bias ? &bias : nullptr;
  const Closeness sums_k{.terms = static_cast<double>(c.k) + 4,
                         .magnitude = 8 + 2.0 * std::sqrt(c.k)};
  const Closeness sums_m{.terms = static_cast<double>(c.m) + 4,
                         .magnitude = 8 + 2.0 * std::sqrt(c.m)};
  const Closeness sums_n{.terms = static_cast<double>(c.n) + 4,
                         .magnitude = 8 + 2.0 * std::sqrt(c.n)};

  OpRun forward{.kind = OpKind::kLinear,
                .attributes = {.transposed = c.transposed},
                .inputs = {&x, &weight, bias_or_none},
                .outputs = {&y}};
  forward.Run();
  ExpectClose(y, Forward(c, x.Values(), weight.Values(), bias.Values()), sums_k);

  OpRun input{.kind = OpKind::kLinearBackwardInput,
              .attributes = {.transposed = c.transposed, .accumulate = c.add},
              .inputs = {&dy, &weight},
              .outputs = {&dx}};
  input.Run();
  const auto of_x = [&](const Doubles& v) { return Forward(c, v, weight.Values(), bias.Values()); };
  ExpectSlopes(dx, NumericGradient(of_x, x.Values(), dy.Values(), random, 20), sums_m, old_dx);

  // A later micro-step adds.
  OpRun weights{.kind = OpKind::kLinearBackwardWeight,
                .attributes = {.transposed = c.transposed},
                .inputs = {&dy, &x},
                .outputs = {&dweight, c.bias ? &dbias : nullptr},
                .step = {.micro_step = c.add ? 1 : 0}};
  weights.Run();
  const auto of_weight = [&](const Doubles& v) { return Forward(c, x.Values(), v, bias.Values()); };
  const auto of_bias = [&](const Doubles& v) { return Forward(c, x.Values(), weight.Values(), v); };
  ExpectSlopes(dweight, NumericGradient(of_weight, weight.Values(), dy.Values(), random, 20),
               sums_n, old_dweight);
  if (!c.bias) return;
  ExpectSlopes(dbias, NumericGradient(of_bias, bias.Values(), dy.Values(), random, 20), sums_n,
               old_dbias);
}

TEST(Linear, EqualsReferenceAndCentralDifferences) {
  std::mt19937 random(1);
  for (const DType dtype : kStorageTypes) {
    for (const bool transposed : {false, true}) {
      for (const bool add : {false, true}) {
        Check({1, 3, 7, dtype, transposed, true, add}, random);
        Check({7, 65, 3, dtype, transposed, false, add}, random);
        Check({65, 7, 33, dtype, transposed, true, add}, random);
      }
    }
  }
  Check({300, 40, 20, DType::kFloat32, false, true, true}, random);
}

}  // namespace
}  // namespace headroom::engine::cpu
