// SPDX-License-Identifier: Apache-2.0
#include "graph/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace headroom::graph {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kUnit = kArenaAlignment.count();

Buffer Units(int64_t units, int32_t first, int32_t last) {
  return {Bytes(units * kUnit), first, last};
}

// Forward keeps one buffer a layer, backward frees them in reverse: what training looks like.
std::vector<Buffer> NestedLifetimes(int layers, std::mt19937& random) {
  std::uniform_int_distribution<int64_t> units(1, 64);
  std::vector<Buffer> buffers;
  for (int layer = 0; layer < layers; ++layer) {
    buffers.push_back(Units(units(random), layer, 2 * layers - layer));
  }
  return buffers;
}

std::vector<Buffer> RandomLifetimes(size_t count, std::mt19937& random) {
  std::uniform_int_distribution<int64_t> bytes(0, 40 * kUnit);
  std::uniform_int_distribution<int32_t> op(0, 60);
  std::vector<Buffer> buffers;
  for (size_t i = 0; i < count; ++i) {
    const int32_t a = op(random);
    const int32_t b = op(random);
    buffers.push_back({Bytes(bytes(random)), std::min(a, b), std::max(a, b)});
  }
  return buffers;
}

TEST(ArenaPlanner, ReusesBytesAfterTheLastUse) {
  const std::vector<Buffer> buffers = {Units(4, 0, 1), Units(4, 2, 3)};
  EXPECT_EQ(PlanArena(buffers).size, Bytes(4 * kUnit));
}

TEST(ArenaPlanner, KeepsApartWhatOneOpReadsAndWrites) {
  const std::vector<Buffer> buffers = {Units(4, 0, 1), Units(4, 1, 2)};
  const ArenaPlan plan = PlanArena(buffers);
  EXPECT_EQ(plan.size, Bytes(8 * kUnit));
  EXPECT_NE(plan.offsets[0], plan.offsets[1]);
}

TEST(ArenaPlanner, ReachesTheBoundOnNestedLifetimes) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    const ArenaPlan plan = PlanArena(NestedLifetimes(40, random));
    EXPECT_EQ(plan.size, plan.lower_bound);
    EXPECT_DOUBLE_EQ(plan.Ratio(), 1.0);
  }
}

TEST(ArenaPlanner, PlansThatItsCheckerProves) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    const std::vector<Buffer> buffers = RandomLifetimes(60, random);
    const ArenaPlan plan = PlanArena(buffers);
    const Status proven = CheckArena(buffers, plan);
    EXPECT_TRUE(proven.ok()) << proven.error().message;
    EXPECT_GE(plan.size, plan.lower_bound);
  }
}

TEST(ArenaPlanner, IsAFunctionOfItsBuffers) {
  std::mt19937 random(3);
  const std::vector<Buffer> buffers = RandomLifetimes(80, random);
  EXPECT_EQ(PlanArena(buffers).offsets, PlanArena(buffers).offsets);
}

TEST(ArenaPlanner, NeedsNothingForNothing) {
  const ArenaPlan plan = PlanArena(std::vector<Buffer>{Units(0, 0, 5)});
  EXPECT_EQ(plan.size, Bytes(0));
  EXPECT_DOUBLE_EQ(plan.Ratio(), 1.0);
}

TEST(ArenaChecker, NamesBuffersThatOverlap) {
  const std::vector<Buffer> buffers = {Units(4, 0, 2), Units(4, 2, 3), Units(1, 0, 3)};
  ArenaPlan plan = PlanArena(buffers);
  plan.offsets[1] = plan.offsets[0];
  const Status proven = CheckArena(buffers, plan);
  ASSERT_FALSE(proven.ok());
  EXPECT_THAT(proven.error().message, HasSubstr("buffers 0 and 1 overlap at op 2"));
}

TEST(ArenaChecker, FindsEveryOverlapThatIsPlanted) {
  std::mt19937 random(4);
  int planted = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const std::vector<Buffer> buffers = RandomLifetimes(30, random);
    ArenaPlan plan = PlanArena(buffers);
    const size_t a = random() % buffers.size();
    const size_t b = random() % buffers.size();
    const bool clash = a != b && buffers[a].Overlaps(buffers[b]) && buffers[a].size.count() > 0 &&
                       buffers[b].size.count() > 0;
    if (!clash) continue;
    ++planted;
    plan.offsets[a] = plan.offsets[b];
    plan.size = plan.size + buffers[a].size;
    EXPECT_FALSE(CheckArena(buffers, plan).ok());
  }
  EXPECT_GT(planted, 50);
}

TEST(ArenaChecker, RefusesWhatIsUnalignedOrOutside) {
  const std::vector<Buffer> buffers = {Units(4, 0, 1)};
  ArenaPlan plan = PlanArena(buffers);
  plan.offsets[0] = Bytes(1);
  EXPECT_THAT(CheckArena(buffers, plan).error().message, HasSubstr("not aligned"));
  plan.offsets[0] = Bytes(kUnit);
  EXPECT_THAT(CheckArena(buffers, plan).error().message, HasSubstr("behind the arena"));
  plan.offsets.clear();
  EXPECT_FALSE(CheckArena(buffers, plan).ok());
}

}  // namespace
}  // namespace headroom::graph
