// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace headroom {
namespace {

Result<int> Half(int number) {
  if (number % 2 != 0) return Error::BadInput("odd");
  return number / 2;
}

Result<int> Quarter(int number) {
  HEADROOM_ASSIGN_OR_RETURN(const int half, Half(number));
  return Half(half);
}

Status Check(int number) {
  HEADROOM_RETURN_IF_ERROR(Half(number));
  return {};
}

TEST(Result, CarriesTheValueOrTheReason) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).error().message, "odd");
  EXPECT_TRUE(Check(2).ok());
  EXPECT_EQ(Check(3).error().In("a.json").message, "a.json: odd");
}

TEST(Result, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 7);
}

}  // namespace
}  // namespace headroom
