// SPDX-License-Identifier: Apache-2.0
#include "observe/event_table.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace headroom::observe {
namespace {

Event RandomEvent(std::mt19937& random, unsigned variety) {
  return {.addr = 512 * (random() % variety),
          .size = static_cast<int64_t>(random() % variety),
          .stack = StackId(random() % 3),
          .stream = static_cast<uint16_t>(random() % 2),
          .context = static_cast<uint16_t>(random() % 2),
          .action = static_cast<Action>(random() % 4)};
}

TEST(EventTable, GivesBackWhatWasAddedAndChanged) {
  std::mt19937 random(7);
  for (const unsigned variety : {2U, 50U, 1U << 20}) {
    EventTable table;
    std::vector<Event> expected;
    for (int i = 0; i < 5000; ++i) {
      expected.push_back(RandomEvent(random, variety));
      table.Add(expected.back(), static_cast<uint64_t>(i));
      if (i % 7 != 0) continue;
      const size_t at = random() % expected.size();
      expected[at] = RandomEvent(random, variety);
      table.Set(at, expected[at]);
    }
    ASSERT_EQ(table.count(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(table[i], expected[i]) << i;
      EXPECT_EQ(table.times()[i], i);
    }
  }
}

TEST(TimeColumn, GivesBackTimesThatJump) {
  constexpr uint64_t kNow = 1'700'000'000'000'000;
  for (const uint64_t jump : {uint64_t{13}, uint64_t{1} << 31, uint64_t{1} << 40, ~kNow}) {
    TimeColumn times;
    std::vector<uint64_t> expected;
    for (uint64_t i = 0; i < 5000; ++i) {
      // A second device's events begin anew, as far back as the first device's lasted.
      expected.push_back(kNow + i * 17 + (i > 1500 ? jump : 0) - (i > 3000 ? jump : 0));
      times.Add(expected.back());
    }
    times.Set(2047, expected[2047] = 0);
    ASSERT_EQ(times.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(times[i], expected[i]) << jump << i;
  }
}

TEST(TimeColumn, FindsTheFirstThatIsNotBefore) {
  TimeColumn times;
  for (const uint64_t time : {10, 20, 20, 30}) times.Add(time);
  EXPECT_EQ(times.FindFrom(20, 0, 4), 1U);
  EXPECT_EQ(times.FindFrom(21, 0, 4), 3U);
  EXPECT_EQ(times.FindFrom(5, 2, 4), 2U);
  EXPECT_EQ(times.FindFrom(31, 0, 4), 4U);
}

TEST(EventTable, HoldsEveryDistinctEventOnce) {
  EventTable table;
  for (int step = 0; step < 1000; ++step) {
    for (uint64_t block = 0; block < 10; ++block) table.Add({.addr = block, .size = 512}, 0);
  }
  EXPECT_EQ(table.count(), 10'000U);
  EXPECT_EQ(table.distinct().size(), 10U);
}

}  // namespace
}  // namespace headroom::observe
