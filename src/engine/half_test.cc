// SPDX-License-Identifier: Apache-2.0
#include "engine/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace headroom::engine {
namespace {

TEST(Half, KeepsEveryValueOfBothFormats) {
  for (uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if (!std::isnan(FromFloat16(half))) {
      ASSERT_EQ(Float16Bits(FromFloat16(half)), half);
    }
    if (!std::isnan(FromBFloat16(half))) {
      ASSERT_EQ(BFloat16Bits(FromBFloat16(half)), half);
    }
  }
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(Float16Bits(1.0F + 0x1p-11F), 0x3c00);
  EXPECT_EQ(Float16Bits(1.0F + 0x1.8p-10F), 0x3c02);
  EXPECT_EQ(Float16Bits(0x1p-25F), 0);
  EXPECT_EQ(Float16Bits(-0x1.8p-24F), 0x8002);
  EXPECT_EQ(Float16Bits(65519.0F), 0x7bff);
  EXPECT_EQ(Float16Bits(65520.0F), 0x7c00);
  EXPECT_EQ(BFloat16Bits(1.0F + 0x1p-8F), 0x3f80);
  EXPECT_EQ(BFloat16Bits(1.0F + 0x1.8p-7F), 0x3f82);
  EXPECT_EQ(BFloat16Bits(std::numeric_limits<float>::max()), 0x7f80);
}

TEST(Half, KeepsInfinityAndNotANumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(FromFloat16(Float16Bits(-infinity)), -infinity);
  EXPECT_EQ(FromBFloat16(BFloat16Bits(infinity)), infinity);
  EXPECT_TRUE(std::isnan(FromFloat16(Float16Bits(std::nanf("")))));
  EXPECT_TRUE(std::isnan(FromBFloat16(BFloat16Bits(std::nanf("")))));
}

}  // namespace
}  // namespace headroom::engine
