// SPDX-License-Identifier: Apache-2.0
#include "predict/allocator.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "predict/block_table.h"

namespace headroom::predict {
namespace {

using Backend = AllocatorOptions::Backend;

std::unique_ptr<AllocatorModel> Make(Backend backend, std::optional<Bytes> limit = std::nullopt) {
  AllocatorOptions options;
  options.backend = backend;
  return MakeAllocator(options, limit);
}

TEST(NativeAllocator, RoundsRequestsTo512Bytes) {
  const auto allocator = Make(Backend::kNative);
  EXPECT_EQ(allocator->Alloc(Bytes(1))->bytes, Bytes(512));
  EXPECT_EQ(allocator->Alloc(Bytes(513))->bytes, Bytes(1024));
  EXPECT_EQ(allocator->Alloc(Bytes(0))->bytes, Bytes(0));
}

TEST(NativeAllocator, TakesSegmentsBySize) {
  const auto allocator = Make(Backend::kNative);
  allocator->Alloc(KiB(1));
  EXPECT_EQ(allocator->reserved(), MiB(2));  // the small pool's segment
  allocator->Alloc(MiB(3));
  EXPECT_EQ(allocator->reserved(), MiB(22));       // 1..10 MiB share 20 MiB
  allocator->Alloc(MiB(19));                       // does not fit the 17 MiB that are left
  EXPECT_EQ(allocator->reserved(), MiB(22 + 20));  // from 10 MiB on, rounded to 2 MiB
}

TEST(NativeAllocator, HandsOutTheWholeBlockWhenLittleWouldRemain) {
  const auto allocator = Make(Backend::kNative);
  const auto large = allocator->Alloc(MiB(11));
  // 12 MiB segment, 1 MiB over: the large pool splits only what leaves more than 1 MiB.
  EXPECT_EQ(large->bytes, MiB(12));
  EXPECT_EQ(allocator->Alloc(MiB(11) - Bytes(512))->bytes, MiB(11) - Bytes(512));
}

TEST(NativeAllocator, ReusesTheSmallestBlockThatFits) {
  const auto allocator = Make(Backend::kNative);
  const auto twelve = allocator->Alloc(MiB(12));
  const auto thirty = allocator->Alloc(MiB(30));
  allocator->Free(thirty->handle);
  allocator->Free(twelve->handle);
  EXPECT_EQ(allocator->Alloc(MiB(12))->bytes, MiB(12));
  EXPECT_EQ(allocator->Alloc(MiB(30))->bytes, MiB(30));
  EXPECT_EQ(allocator->reserved(), MiB(42));
}

TEST(NativeAllocator, MergesFreeNeighbours) {
  const auto allocator = Make(Backend::kNative);
  std::vector<AllocatorModel::Allocation> parts;
  for (int i = 0; i < 4; ++i) parts.push_back(*allocator->Alloc(MiB(5)));
  EXPECT_EQ(allocator->reserved(), MiB(20));
  for (const auto& part : parts) allocator->Free(part.handle);
  allocator->Alloc(MiB(9));
  allocator->Alloc(MiB(9));
  EXPECT_EQ(allocator->reserved(), MiB(20));
}

TEST(NativeAllocator, GivesCachedSegmentsBackBeforeItFails) {
  const auto allocator = Make(Backend::kNative, MiB(100));
  const auto first = allocator->Alloc(MiB(60));
  allocator->Free(first->handle);
  EXPECT_EQ(allocator->reserved(), MiB(60));
  ASSERT_TRUE(allocator->Alloc(MiB(80)));
  EXPECT_EQ(allocator->reserved(), MiB(80));
  EXPECT_FALSE(allocator->Alloc(MiB(30)));
}

TEST(NativeAllocator, KeepsSegmentsThatHoldALiveBlock) {
  const auto allocator = Make(Backend::kNative);
  const auto kept = allocator->Alloc(MiB(2));
  const auto freed = allocator->Alloc(MiB(40));
  allocator->Free(freed->handle);
  allocator->EmptyCache();
  EXPECT_EQ(allocator->reserved(), MiB(20));
  allocator->Free(kept->handle);
  allocator->EmptyCache();
  EXPECT_EQ(allocator->reserved(), Bytes(0));
}

TEST(NativeAllocator, DoesNotSplitBlocksAboveMaxSplitSize) {
  AllocatorOptions options;
  options.max_split_size = MiB(50);
  const auto allocator = MakeAllocator(options, std::nullopt);
  const auto big = allocator->Alloc(MiB(200));
  allocator->Free(big->handle);
  // A small request may not take the oversize block, a near-equal one takes it whole.
  allocator->Alloc(MiB(30));
  EXPECT_EQ(allocator->reserved(), MiB(230));
  EXPECT_EQ(allocator->Alloc(MiB(190))->bytes, MiB(200));
}

TEST(NativeAllocator, RoundsToPowerOfTwoDivisionsOnRequest) {
  AllocatorOptions options;
  options.roundup_power2_divisions = 4;
  EXPECT_EQ(RoundRequest(Bytes(1200 << 10), options), Bytes(1280 << 10));
  EXPECT_EQ(RoundRequest(MiB(4), options), MiB(4));
  EXPECT_EQ(RoundRequest(Bytes(700), options), Bytes(1024));
}

TEST(ExpandableAllocator, GrowsOneRangeByPages) {
  const auto allocator = Make(Backend::kExpandableSegments);
  allocator->Alloc(MiB(15));
  EXPECT_EQ(allocator->reserved(), MiB(20));
  // The 5 MiB left are used: only one more page is mapped for 20 MiB.
  allocator->Alloc(MiB(20));
  EXPECT_EQ(allocator->reserved(), MiB(40));
  allocator->Alloc(KiB(1));
  EXPECT_EQ(allocator->reserved(), MiB(42));
}

TEST(ExpandableAllocator, MapsWhatAFreeTailLacks) {
  const auto allocator = Make(Backend::kExpandableSegments);
  const auto first = allocator->Alloc(MiB(100));
  allocator->Free(first->handle);
  allocator->Alloc(MiB(130));
  EXPECT_EQ(allocator->reserved(), MiB(140));
}

TEST(ExpandableAllocator, KeepsTheGrowingEndForWhatFitsNowhereElse) {
  const auto allocator = Make(Backend::kExpandableSegments);
  const auto hole = allocator->Alloc(MiB(60));
  allocator->Alloc(MiB(10));  // leaves 10 MiB at the end of the range
  allocator->Free(hole->handle);
  allocator->Alloc(MiB(8));   // from the hole, though the end fits better
  allocator->Alloc(MiB(52));  // only the hole is left exactly
  EXPECT_EQ(allocator->reserved(), MiB(80));
  allocator->Alloc(MiB(10));
  EXPECT_EQ(allocator->reserved(), MiB(80));
}

TEST(ExpandableAllocator, UnmapsWholePagesAndMapsThemAgain) {
  const auto allocator = Make(Backend::kExpandableSegments);
  const auto low = allocator->Alloc(MiB(60));
  const auto high = allocator->Alloc(MiB(20));
  allocator->Free(low->handle);
  allocator->EmptyCache();
  EXPECT_EQ(allocator->reserved(), MiB(20));
  EXPECT_EQ(allocator->Alloc(MiB(60))->bytes, MiB(60));
  EXPECT_EQ(allocator->reserved(), MiB(80));
  allocator->Free(high->handle);
}

// Any stream of requests: what is handed out is counted in full and never exceeds what is held, and
// the ideal allocator never holds more than the real ones.
class AnyAllocator : public testing::TestWithParam<Backend> {};

TEST_P(AnyAllocator, NeverHandsOutMoreThanItHolds) {
  std::mt19937 random(7);
  const auto allocator = Make(GetParam());
  const auto ideal = Make(Backend::kIdeal);
  std::map<int, std::array<AllocatorModel::Allocation, 2>> live;
  Bytes allocated;
  for (int step = 0; step < 20000; ++step) {
    if (live.size() < 5 || random() % 2 == 0) {
      const Bytes size(static_cast<int64_t>(random() % (1 + (1u << (random() % 26)))));
      const auto given = allocator->Alloc(size);
      ASSERT_TRUE(given);
      ASSERT_GE(given->bytes, size);
      allocated += given->bytes;
      live[step] = {*given, *ideal->Alloc(size)};
    } else {
      auto victim = live.begin();
      std::advance(victim, static_cast<long>(random() % live.size()));
      allocated -= victim->second[0].bytes;
      allocator->Free(victim->second[0].handle);
      ideal->Free(victim->second[1].handle);
      live.erase(victim);
    }
    ASSERT_LE(allocated, allocator->reserved());
    ASSERT_LE(ideal->reserved(), allocator->reserved());
  }
  for (const auto& [step, blocks] : live) allocator->Free(blocks[0].handle);
  allocator->EmptyCache();
  EXPECT_EQ(allocator->reserved(), Bytes(0));
}

INSTANTIATE_TEST_SUITE_P(Backends, AnyAllocator,
                         testing::Values(Backend::kNative, Backend::kExpandableSegments));

TEST(AllocConf, ReadsWhatPyTorchReads) {
  const auto options = ParseAllocConf("expandable_segments:True, max_split_size_mb:128");
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->backend, Backend::kExpandableSegments);
  EXPECT_EQ(options->max_split_size, MiB(128));
  EXPECT_TRUE(ParseAllocConf("").ok());
  EXPECT_TRUE(ParseAllocConf("pinned_num_register_threads:8,").ok());
}

TEST(AllocConf, NamesTheNearestSetting) {
  const auto options = ParseAllocConf("expandable_segment:True");
  ASSERT_FALSE(options.ok());
  EXPECT_NE(options.error().message.find("did you mean \"expandable_segments\""),
            std::string::npos);
  for (const char* bad : {"expandable_segments:yes", "max_split_size_mb:5", "max_split_size_mb",
                          "roundup_power2_divisions:3", "garbage_collection_threshold:2",
                          "backend:cudaMallocAsync"}) {
    EXPECT_FALSE(ParseAllocConf(bad).ok()) << bad;
  }
}

// Against a set, over what comes and goes at random; bins fill, split into runs and empty on the
// way.
TEST(FreeBlocks, KeepTheOrderOfASet) {
  std::mt19937 random(7);
  const auto units = [&](int64_t most) {
    return static_cast<int64_t>(random()) % most << (random() % 4 == 0 ? random() % 30 : 0);
  };
  FreeBlocks blocks;
  std::set<std::tuple<int64_t, uint64_t, int32_t>> expected;
  std::vector<Block> table;
  for (int step = 0; step < 5000; ++step) {
    const bool grow = expected.empty() || random() % 5 < (step < 2500 ? 3U : 2U);
    if (grow) {
      Block block;
      block.size = 512 * (1 + units(40));
      block.address = 512 * table.size();
      expected.emplace(block.size, block.address, static_cast<int32_t>(table.size()));
      blocks.Insert(block, static_cast<int32_t>(table.size()));
      table.push_back(block);
    } else {
      const int64_t size = 512 * units(42);
      const auto best = expected.lower_bound({size, 0, 0});
      const FreeBlocks::Place place = blocks.BestFit(size);
      ASSERT_EQ(place.block, best == expected.end() ? -1 : std::get<2>(*best));
      if (place.block < 0) continue;
      if (random() % 2 == 0) {
        blocks.Erase(place);
      } else {
        blocks.Erase(table[static_cast<size_t>(place.block)]);
      }
      expected.erase(best);
    }
  }
  std::vector<int32_t> left;
  for (const auto& [size, address, block] : expected) left.push_back(block);
  EXPECT_EQ(blocks.Blocks(), left);
}

}  // namespace
}  // namespace headroom::predict
