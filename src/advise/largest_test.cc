// SPDX-License-Identifier: Apache-2.0
#include "advise/largest.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

std::function<Result<Fit>(int64_t)> UpTo(int64_t limit, int* asked = nullptr) {
  return [limit, asked](int64_t value) -> Result<Fit> {
    if (asked != nullptr) ++*asked;
    return value <= limit ? Fit::kFits : Fit::kTooLarge;
  };
}

TEST(FindLargest, FindsTheEdgeFromEitherSide) {
  for (const int64_t limit : {1, 2, 3, 7, 64, 1000}) {
    for (const int64_t start : {1, 8, 512}) {
      const Result<Largest> found = FindLargest(UpTo(limit), start, 4096);
      ASSERT_TRUE(found.ok());
      EXPECT_EQ(found->value, limit) << start;
      EXPECT_TRUE(found->limited_by_memory);
    }
  }
}

TEST(FindLargest, SaysThatNothingFits) {
  const Result<Largest> found = FindLargest(UpTo(0), 32, 4096);
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->value.has_value());
  EXPECT_TRUE(found->limited_by_memory);
}

TEST(FindLargest, StopsAtTheMostThatMayBeAsked) {
  const Result<Largest> found = FindLargest(UpTo(1 << 30), 8, 512);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->value, 512);
  EXPECT_FALSE(found->limited_by_memory);
}

TEST(FindLargest, LooksRightAboveTheEdge) {
  // 101 needs more than 102 does.
  const auto fit = [](int64_t value) -> Result<Fit> {
    return value <= 100 || value == 102 ? Fit::kFits : Fit::kTooLarge;
  };
  const Result<Largest> found = FindLargest(fit, 100, 4096);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->value, 102);
}

TEST(FindLargest, AsksLittle) {
  int asked = 0;
  ASSERT_TRUE(FindLargest(UpTo(100'000, &asked), 8, 1 << 20).ok());
  EXPECT_LT(asked, 40);
}

TEST(FindLargest, EndsWithTheFailureOfAPrediction) {
  const auto fit = [](int64_t) -> Result<Fit> { return Error::BadInput("no such model"); };
  EXPECT_FALSE(FindLargest(fit, 8, 16).ok());
}

}  // namespace
}  // namespace headroom
