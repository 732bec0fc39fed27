// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "engine/cpu/dropout.h"
#include "engine/cpu/op_harness.h"

namespace headroom::engine::cpu {
namespace {

using graph::NormKind;
using graph::OpKind;

struct Case {
  int64_t rows, columns;
  DType dtype = DType::kFloat32;
  NormKind norm = NormKind::kLayerNorm;
  bool residual = false;
  float dropout = 0;
  bool dsum = false;
  bool add = false;
  bool dbias = false;  // added to that of an earlier micro-step
};

constexpr float kEps = 1e-5F;

Doubles Normalise(const Case& c, const Doubles& x, const Doubles& gamma, const Doubles& beta) {
  Doubles y;
  const auto columns = static_cast<size_t>(c.columns);
  for (size_t row = 0; row < x.size() / columns; ++row) {
    const double* values = x.data() + row * columns;
    double mean = 0;
    for (size_t i = 0; i < columns; ++i) mean += values[i] / static_cast<double>(columns);
    if (c.norm == NormKind::kRmsNorm) mean = 0;
    double variance = 0;
    for (size_t i = 0; i < columns; ++i) variance += (values[i] - mean) * (values[i] - mean);
    variance /= static_cast<double>(columns);
    for (size_t i = 0; i < columns; ++i) {
      y.push_back((values[i] - mean) / std::sqrt(variance + static_cast<double>(kEps)) * gamma[i] +
                  (beta.empty() ? 0 : beta[i]));
    }
  }
  return y;
}

// residual + dropout(x), with the mask as dropout.h defines it.
Doubles Sum(const DropoutMask& mask, const Doubles& x, const Doubles& residual) {
  Doubles sum;
  for (size_t i = 0; i < x.size(); ++i) {
    sum.push_back(residual[i] + x[i] * static_cast<double>(mask.Factor(i)));
  }
  return sum;
}

void Check(const Case& c, std::mt19937& random) {
  SCOPED_TRACE(testing::Message() << c.rows << "x" << c.columns << " " << Name(c.dtype) << " "
                                  << static_cast<int>(c.norm) << c.residual << c.dropout << c.dsum
                                  << c.add);
  const Shape shape{c.rows, c.columns};
  const auto tensor = [&] { return TestTensor::Random(shape, c.dtype, random); };
  const auto vector = [&] { return TestTensor::Random(Shape{c.columns}, c.dtype, random); };
  TestTensor x = tensor();
  TestTensor residual = tensor();
  TestTensor gamma = vector();
  TestTensor beta = vector();
  TestTensor y = tensor();
  TestTensor sum = tensor();
  TestTensor mean = TestTensor::Zeros(Shape{c.rows});
  TestTensor rstd = TestTensor::Zeros(Shape{c.rows});
  const bool layer_norm = c.norm == NormKind::kLayerNorm;
  const graph::OpAttributes attributes{
      .dropout = c.dropout, .stream = 5, .norm = c.norm, .eps = kEps, .accumulate = c.add};
  const StepScalars step{.seed = 3, .step = 9, .micro_step = c.add || c.dbias ? 1 : 0};
  OpRun forward{
      .kind = OpKind::kNorm,
      .attributes = attributes,
      .inputs = {&x, c.residual ? &residual : nullptr, &gamma, layer_norm ? &beta : nullptr},
      .outputs = {&y, c.residual ? &sum : nullptr, layer_norm ? &mean : nullptr, &rstd},
      .step = step};
  forward.Run();
  const OpCall call{.kind = OpKind::kNorm,
                    .attributes = attributes,
                    .inputs = {},
                    .outputs = {},
                    .scratch = {},
                    .step = step};
  const DropoutMask mask = MaskOf(call);
  const Closeness closeness{.terms = static_cast<double>(c.columns) + 16};
  if (c.residual) ExpectClose(sum, Sum(mask, x.Values(), residual.Values()), closeness);
  const Doubles betas = layer_norm ? beta.Values() : Doubles{};
  const Doubles stored = c.residual ? sum.Values() : x.Values();
  ExpectClose(y, Normalise(c, stored, gamma.Values(), betas), closeness);

  TestTensor dy = tensor();
  TestTensor dsum = tensor();
  TestTensor dx = tensor();
  TestTensor dresidual = tensor();
  TestTensor dgamma = vector();
  TestTensor dbeta = vector();
  TestTensor dbias = vector();
  const Doubles none;
  const Doubles old_dx = c.add ? dx.Values() : none;
  const Doubles old_dresidual = c.add ? dresidual.Values() : none;
  const Doubles old_dgamma = step.micro_step > 0 ? dgamma.Values() : none;
  const Doubles old_dbeta = step.micro_step > 0 ? dbeta.Values() : none;
  Doubles sums = dbias.Values();
  const bool two = c.dropout > 0;
  OpRun backward{.kind = OpKind::kNormBackward,
                 .attributes = attributes,
                 .inputs = {&dy, c.residual ? &sum : &x, &gamma, layer_norm ? &mean : nullptr,
                            &rstd, c.dsum ? &dsum : nullptr},
                 .outputs = {&dx, two ? &dresidual : nullptr, &dgamma,
                             layer_norm ? &dbeta : nullptr, c.dbias ? &dbias : nullptr},
                 .step = step};
  backward.Run();
  // The gradient of the sum, by which both dx and dresidual are known.
  const auto of_sum = [&](const Doubles& v) { return Normalise(c, v, gamma.Values(), betas); };
  Slopes slopes = NumericGradient(of_sum, stored, dy.Values(), random);
  double magnitude = 1;
  for (size_t i = 0; i < slopes.at.size(); ++i) {
    if (c.dsum) slopes.values[i] += dsum.Values()[slopes.at[i]];
    magnitude = std::max(magnitude, 4 * std::fabs(slopes.values[i]));
  }
  // Few columns amplify: rstd is large where they nearly agree.
  const Closeness rows{.terms = 4 * static_cast<double>(c.columns) + 64, .magnitude = magnitude};
  if (two) ExpectSlopes(dresidual, slopes, rows, old_dresidual);
  for (size_t i = 0; i < slopes.at.size(); ++i) {
    slopes.values[i] *= two ? static_cast<double>(mask.Factor(slopes.at[i])) : 1;
  }
  ExpectSlopes(dx, slopes, rows, old_dx);
  const Closeness columns{.terms = static_cast<double>(c.rows) + 16,
                          .magnitude = 4 * static_cast<double>(c.rows)};
  if (c.dbias) {
    const Doubles values = dx.Values();
    for (size_t i = 0; i < values.size(); ++i) sums[i % sums.size()] += values[i];
    ExpectClose(dbias, sums, columns);
  }
  const auto of_gamma = [&](const Doubles& v) { return Normalise(c, stored, v, betas); };
  ExpectSlopes(dgamma, NumericGradient(of_gamma, gamma.Values(), dy.Values(), random, 20), columns,
               old_dgamma);
  if (!layer_norm) return;
  const auto of_beta = [&](const Doubles& v) { return Normalise(c, stored, gamma.Values(), v); };
  ExpectSlopes(dbeta, NumericGradient(of_beta, betas, dy.Values(), random, 20), columns, old_dbeta);
}

TEST(Norm, EqualsReferenceAndCentralDifferences) {
  std::mt19937 random(1);
  for (const DType dtype : kStorageTypes) {
    for (const NormKind norm : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
      Check({.rows = 3, .columns = 7, .dtype = dtype, .norm = norm}, random);
      Check({.rows = 7, .columns = 65, .dtype = dtype, .norm = norm, .residual = true}, random);
      Check({.rows = 5,
             .columns = 33,
             .dtype = dtype,
             .norm = norm,
             .residual = true,
             .dropout = 0.3F,
             .dsum = true},
            random);
      Check({.rows = 4, .columns = 16, .dtype = dtype, .norm = norm, .dsum = true, .add = true},
            random);
      Check({.rows = 33,
             .columns = 70,
             .dtype = dtype,
             .norm = norm,
             .residual = true,
             .dropout = 0.3F,
             .dbias = true},
            random);
    }
  }
  Check({.rows = 2, .columns = 1030, .residual = true, .dropout = 0.1F, .add = true}, random);
  Check({.rows = 300, .columns = 70, .norm = NormKind::kRmsNorm}, random);
}

TEST(Norm, OfTheSumIsTheSameWhetherTheSumIsKeptOrNot) {
  std::mt19937 random(2);
  const Shape shape{5, 70};
  for (const DType dtype : kStorageTypes) {
    TestTensor x = TestTensor::Random(shape, dtype, random);
    TestTensor residual = TestTensor::Random(shape, dtype, random);
    TestTensor gamma = TestTensor::Random(Shape{70}, dtype, random);
    TestTensor y = TestTensor::Zeros(shape, dtype);
    TestTensor sum = TestTensor::Zeros(shape, dtype);
    TestTensor rstd = TestTensor::Zeros(Shape{5});
    TestTensor again = y;
    OpRun kept{.kind = OpKind::kNorm,
               .inputs = {&x, &residual, &gamma},
               .outputs = {&y, &sum, nullptr, &rstd}};
    kept.Run();
    OpRun lost{.kind = OpKind::kNorm,
               .inputs = {&x, &residual, &gamma},
               .outputs = {&again, nullptr, nullptr, &rstd}};
    lost.Run();
    EXPECT_EQ(y.bytes, again.bytes);
  }
}

}  // namespace
}  // namespace headroom::engine::cpu
