// SPDX-License-Identifier: Apache-2.0
#include "engine/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/cpu/dropout.h"
#include "engine/half.h"

namespace headroom::engine {
namespace {

constexpr uint32_t kDraws = 1U << 16;

TEST(StochasticRounding, HasTheValueAsItsMean) {
  for (const float value : {1.001F, -3.14159F, 0.02F, 1e-39F, -2.5e38F}) {
    double sum = 0;
    for (uint32_t random = 0; random < kDraws; ++random) {
      const float rounded = FromBFloat16(RoundStochastically(value, random));
      ASSERT_LE(std::fabs(rounded - value), std::fabs(value) * 0x1p-7F + 0x1p-133F) << value;
      sum += static_cast<double>(rounded);
    }
    // Every draw once: the mean is the value itself, but for the sum's own rounding.
    EXPECT_NEAR(sum / kDraws, static_cast<double>(value), 1e-10 * std::fabs(value)) << value;
  }
}

TEST(StochasticRounding, LeavesWhatIsABFloat16) {
  for (uint32_t bits = 0; bits < kDraws; ++bits) {
    const float value = FromBFloat16(static_cast<uint16_t>(bits));
    for (const uint32_t random : {0U, 1U, 0x8000U, 0xffffU}) {
      const uint16_t rounded = RoundStochastically(value, random);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(FromBFloat16(rounded)));
      } else {
        ASSERT_EQ(rounded, bits);
      }
    }
  }
}

TEST(StochasticRounding, KeepsANumberThatIsNoneInItsLowerBitsAlone) {
  const auto nan = std::bit_cast<float>(0x7f800001U);
  EXPECT_TRUE(std::isnan(FromBFloat16(RoundStochastically(nan, 0))));
  EXPECT_TRUE(std::isnan(FromBFloat16(RoundStochastically(nan, 0xffff))));
}

// No counter of a parameter is one of dropout's, nor another parameter's.
TEST(StochasticRounding, HasStreamsOfItsOwn) {
  const StepScalars step{.seed = 7, .step = 3};
  const StochasticRounding first = RoundingOf(step, 1U << 31, 0);
  const StochasticRounding second = RoundingOf(step, 1U << 31, 1);
  const DropoutMask mask{.key = 7, .step = 3, .stream = 1};
  EXPECT_NE(first.Counter(5), second.Counter(5));
  EXPECT_NE(second.Counter(5), mask.Counter(5));
  EXPECT_NE(first.Counter(5), first.Counter((uint64_t{1} << 32) + 5));
  EXPECT_NE(first.Counter(5), RoundingOf({.seed = 7, .step = 4}, 1U << 31, 0).Counter(5));
}

}  // namespace
}  // namespace headroom::engine
