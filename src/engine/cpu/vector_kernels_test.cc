// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/vector_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/half.h"

namespace headroom::engine::cpu {
namespace {

using graph::ActivationKind;

TEST(VectorKernels, ExpIsWithinTwoUnitsInTheLastPlace) {
  for (const VectorLevel level : VectorLevels()) {
    UseVectorLevel(level);
    for (float x = -87.3F; x < 88.7F; x += 0.0137F) {
      float y = 0;
      Kernels().exp_sum(&x, 0, 1, &y);
      const double want = std::exp(static_cast<double>(x));
      ASSERT_NEAR(static_cast<double>(y), want, 2 * 0x1p-23 * want) << x;
    }
  }
}

TEST(VectorKernels, ExpKeepsItsLimits) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const VectorLevel level : VectorLevels()) {
    UseVectorLevel(level);
    const float x[] = {-infinity, -100, 0, 89, infinity, std::nanf("")};
    float y[6];
    Kernels().exp_sum(x, 0, 6, y);
    EXPECT_EQ(y[0], 0);
    EXPECT_EQ(y[1], 0);
    EXPECT_EQ(y[2], 1);
    EXPECT_EQ(y[3], infinity);
    EXPECT_EQ(y[4], infinity);
    EXPECT_TRUE(std::isnan(y[5]));
  }
}

TEST(VectorKernels, TanhKeepsItsRelativePrecisionNearZero) {
  for (const VectorLevel level : VectorLevels()) {
    UseVectorLevel(level);
    for (float x = 1e-6F; x < 12; x *= 1.01F) {
      for (const float signed_x : {x, -x}) {
        float y = 0;
        Kernels().activation(ActivationKind::kTanh, &signed_x, 1, &y);
        const double want = std::tanh(static_cast<double>(signed_x));
        ASSERT_NEAR(static_cast<double>(y), want, 3 * 0x1p-23 * std::fabs(want)) << signed_x;
      }
    }
  }
}

TEST(VectorKernels, GeluIsWithinTheBoundOfItsApproximation) {
  for (const VectorLevel level : VectorLevels()) {
    UseVectorLevel(level);
    for (float x = -9; x < 9; x += 0.0113F) {
      float y = 0;
      Kernels().activation(ActivationKind::kGelu, &x, 1, &y);
      const auto exact = static_cast<double>(x);
      const double want = 0.5 * exact * std::erfc(-exact / std::sqrt(2.0));
      ASSERT_NEAR(static_cast<double>(y), want, 2.5e-7 * std::max(1.0, std::fabs(exact))) << x;
    }
  }
}

TEST(VectorKernels, SixteenBitTypesAreThoseOfHalf) {
  std::vector<float> values;
  std::mt19937 random(1);
  std::uniform_int_distribution<uint32_t> bits;
  for (int i = 0; i < 20011; ++i) values.push_back(std::bit_cast<float>(bits(random)));
  for (int i = 0; i < 2000; ++i) values.push_back(std::ldexp(1.0F, i % 40 - 26) * 1.00049F);
  const auto n = static_cast<int64_t>(values.size());
  std::vector<uint16_t> stored(values.size());
  std::vector<float> back(values.size());
  for (const VectorLevel level : VectorLevels()) {
    UseVectorLevel(level);
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      Kernels().store(values.data(), n, dtype, reinterpret_cast<std::byte*>(stored.data()));
      Kernels().load(reinterpret_cast<const std::byte*>(stored.data()), dtype, n, back.data());
      for (size_t i = 0; i < values.size(); ++i) {
        const bool half = dtype == DType::kFloat16;
        const uint16_t want = half ? Float16Bits(values[i]) : BFloat16Bits(values[i]);
        if (std::isnan(values[i])) {
          ASSERT_TRUE(std::isnan(back[i]));
          continue;
        }
        ASSERT_EQ(stored[i], want) << values[i];
        ASSERT_EQ(back[i], half ? FromFloat16(want) : FromBFloat16(want));
      }
    }
  }
}

TEST(VectorKernels, RoundStochasticallyAsTheDefinitionDoes) {
  std::mt19937 random(3);
  std::uniform_int_distribution<uint32_t> bits;
  const StochasticRounding rounding{.key = 0x123456789ULL, .step = 9, .stream = 1U << 31};
  for (const uint64_t first : {uint64_t{0}, uint64_t{1} << 35, (uint64_t{1} << 35) - 64}) {
    for (const size_t n : {size_t{1}, size_t{8}, size_t{131}, size_t{1024}}) {
      std::vector<float> x(n);
      std::vector<uint16_t> want(n);
      for (size_t i = 0; i < n; ++i) {
        x[i] = std::bit_cast<float>(bits(random));
        const uint64_t element = first + i;
        const uint32_t word = Philox(rounding.Counter(element / 8), rounding.key)[element / 2 % 4];
        want[i] = RoundStochastically(x[i], element % 2 == 0 ? word & 0xffffU : word >> 16);
      }
      for (const VectorLevel level : VectorLevels()) {
        UseVectorLevel(level);
        std::vector<uint16_t> got(n);
        Kernels().round_stochastically(rounding, first, x.data(), static_cast<int64_t>(n),
                                       reinterpret_cast<std::byte*>(got.data()));
        ASSERT_EQ(got, want) << first << " + " << n;
      }
    }
  }
}

TEST(VectorKernels, ReductionsTakeEveryLength) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (const VectorLevel level : VectorLevels()) {
    UseVectorLevel(level);
    for (int64_t n = 0; n < 150; ++n) {
      std::vector<float> x(static_cast<size_t>(n));
      double sum = 0;
      double squares = 0;
      double magnitude = 0;
      float max = -std::numeric_limits<float>::infinity();
      for (float& value : x) {
        value = normal(random);
        const auto exact = static_cast<double>(value);
        sum += exact;
        magnitude += std::fabs(exact);
        squares += (exact - 0.5) * (exact - 0.5);
        max = std::max(max, value);
      }
      const double bound = static_cast<double>(n) * 0x1p-24;
      ASSERT_NEAR(static_cast<double>(Kernels().sum(x.data(), n)), sum, bound * magnitude);
      ASSERT_NEAR(static_cast<double>(Kernels().squares_about(x.data(), 0.5F, n)), squares,
                  (bound + 0x1p-22) * squares);
      ASSERT_EQ(Kernels().max(x.data(), n), max);
    }
  }
}

}  // namespace
}  // namespace headroom::engine::cpu
