// SPDX-License-Identifier: Apache-2.0
#include "observe/memo_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace headroom::observe {
namespace {

using Tag = PickleValue::Tag;

// At entry 100: small and large numbers of every tag.
std::vector<PickleValue> Values() {
  std::vector<PickleValue> values = {{},
                                     PickleValue::None(),
                                     PickleValue::Bool(true),
                                     PickleValue::Int(-1),
                                     PickleValue::Int(INT64_MAX >> 4),
                                     PickleValue::IntPair(0, 0),
                                     PickleValue::IntPair(3, 16383),
                                     PickleValue::IntPair(16384, 1),
                                     PickleValue::IntPair(1, (1U << 30) - 1)};
  for (int tag = 0; tag < 16; ++tag) {
    if (Tag(tag) == Tag::kCustom || Tag(tag) == Tag::kUnset) continue;
    for (const uint64_t number : {0ULL, 100ULL, 101ULL, (1ULL << 28) - 1, 1ULL << 28, 1ULL << 59}) {
      values.push_back(PickleValue::Of(Tag(tag), number));
    }
  }
  for (uint8_t kind = 0; kind < 16; ++kind) {
    for (const uint64_t number : {0ULL, 101ULL, (1ULL << 28) - 1, 1ULL << 28, 17ULL << 32 | 101,
                                  17ULL << 32 | 102, ((1ULL << 24) - 1) << 32 | 101}) {
      values.push_back(PickleValue::Custom(kind, number));
    }
  }
  return values;
}

TEST(MemoTable, GivesBackWhateverWasWritten) {
  for (const PickleValue value : Values()) {
    MemoTable memo;
    memo.Set(100, value);
    EXPECT_EQ(memo.size(), 101U);
    EXPECT_EQ(memo[100].bits(), value.bits());
    EXPECT_TRUE(memo[99].is(Tag::kUnset));
  }
}

TEST(MemoTable, KeepsTheLastOfManyValuesOfAnEntry) {
  MemoTable memo;
  memo.Set(101, PickleValue::Int(7));
  for (const PickleValue value : Values()) {
    memo.Set(100, value);
    EXPECT_EQ(memo[100].bits(), value.bits());
    EXPECT_EQ(memo[101].bits(), PickleValue::Int(7).bits());
  }
}

}  // namespace
}  // namespace headroom::observe
