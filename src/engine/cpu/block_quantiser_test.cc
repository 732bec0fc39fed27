// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/block_quantiser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace headroom::engine {
namespace {

TEST(BlockQuantiser, MapsHaveTheDecadesOfTheDynamicMap) {
  const BlockQuantiser& with_sign = BlockQuantiser::Signed();
  const BlockQuantiser& without = BlockQuantiser::Unsigned();
  EXPECT_EQ(with_sign.Value(255), 1.0F);
  EXPECT_EQ(with_sign.Value(127), 0.0F);
  EXPECT_FLOAT_EQ(with_sign.Value(128), 0.55e-6F);     // the middle of the lowest decade
  EXPECT_FLOAT_EQ(with_sign.Value(254), 0.99296875F);  // 0.1 + 63.5 / 64 * 0.9
  EXPECT_FLOAT_EQ(with_sign.Value(0), -0.99296875F);   // no -1
  EXPECT_EQ(without.Value(0), 0.0F);
  EXPECT_EQ(without.Value(255), 1.0F);
  EXPECT_FLOAT_EQ(without.Value(1), 0.325e-6F);
  EXPECT_FLOAT_EQ(without.Value(254), 0.996484375F);
  for (int code = 0; code < 255; ++code) {
    const auto low = static_cast<uint8_t>(code);
    const auto high = static_cast<uint8_t>(code + 1);
    EXPECT_LT(with_sign.Value(low), with_sign.Value(high));
    EXPECT_LT(without.Value(low), without.Value(high));
  }
}

TEST(BlockQuantiser, NearestIsTheNearestOfAll) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> exponent(-9, 0);
  for (const BlockQuantiser* quantiser : {&BlockQuantiser::Signed(), &BlockQuantiser::Unsigned()}) {
    for (int i = 0; i < 20000; ++i) {
      float x = std::pow(10.0F, exponent(random));
      if (quantiser == &BlockQuantiser::Signed() && i % 2 == 0) x = -x;
      const float got = std::fabs(quantiser->Value(quantiser->Nearest(x)) - x);
      float best = 2;
      for (int code = 0; code < 256; ++code) {
        best = std::min(best, std::fabs(quantiser->Value(static_cast<uint8_t>(code)) - x));
      }
      ASSERT_EQ(got, best) << x;
    }
  }
}

// The table holds one code for a range of floats, and a comparison must settle the rest.
TEST(BlockQuantiser, SettlesEveryMiddleByOneComparison) {
  for (const BlockQuantiser* quantiser : {&BlockQuantiser::Signed(), &BlockQuantiser::Unsigned()}) {
    for (int code = 0; code < 255; ++code) {
      const auto low = static_cast<uint8_t>(code);
      const auto high = static_cast<uint8_t>(code + 1);
      const float middle = (quantiser->Value(low) + quantiser->Value(high)) / 2;
      EXPECT_EQ(quantiser->Nearest(middle), low);
      EXPECT_EQ(quantiser->Nearest(std::nextafter(middle, 2.0F)), high);
    }
  }
}

TEST(BlockQuantiser, TakesTheEndsZeroAndInfinity) {
  const BlockQuantiser& quantiser = BlockQuantiser::Signed();
  EXPECT_EQ(quantiser.Nearest(-1.0F), 0);
  EXPECT_EQ(quantiser.Nearest(1.0F), 255);
  EXPECT_EQ(quantiser.Nearest(0.0F), 127);
  EXPECT_EQ(quantiser.Nearest(-0.0F), 127);
  EXPECT_EQ(quantiser.Nearest(HUGE_VALF), 255);
  EXPECT_EQ(quantiser.Nearest(-HUGE_VALF), 0);
}

TEST(BlockQuantiser, KeepsTheSignOfTheSmallestValues) {
  const float values[] = {-1.0F, 1e-9F, -1e-9F, 0.0F};
  uint8_t codes[4];
  const float scale = BlockQuantiser::Signed().Store(values, 4, codes);
  EXPECT_EQ(scale, 1.0F);
  float back[4];
  BlockQuantiser::Signed().Load(codes, scale, 4, back);
  EXPECT_GE(back[1], 0.0F);
  EXPECT_LT(back[2], 0.0F);
  EXPECT_EQ(back[3], 0.0F);
}

TEST(BlockQuantiser, StoresWhatItLoadsAsTheSameCodes) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  float values[kQuantisedBlock];
  for (float& value : values) value = normal(random);
  values[7] = 6;  // the largest is positive, as its code 255 means exactly the scale
  uint8_t codes[kQuantisedBlock];
  uint8_t again[kQuantisedBlock];
  const BlockQuantiser& quantiser = BlockQuantiser::Signed();
  const float scale = quantiser.Store(values, kQuantisedBlock, codes);
  quantiser.Load(codes, scale, kQuantisedBlock, values);
  EXPECT_EQ(quantiser.Store(values, kQuantisedBlock, again), scale);
  EXPECT_TRUE(std::equal(codes, codes + kQuantisedBlock, again));
}

}  // namespace
}  // namespace headroom::engine
