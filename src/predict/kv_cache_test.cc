// SPDX-License-Identifier: Apache-2.0
//
// What a cache holds after its updates, and what it holds for a moment meanwhile.
#include "predict/kv_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

Platform IdealPlatform() {
  Platform platform = MeasuredPlatform();
  platform.allocator.backend = AllocatorOptions::Backend::kIdeal;
  return platform;
}

ModelConfig ConfigOf(const char* json) {
  const Result<ModelConfig> config = ModelConfig::FromJson(json, "test");
  EXPECT_TRUE(config.ok());
  return *config;
}

// Keys and values of [1, 2, n, 64] in bf16: 256 B a position each.
class KvCacheTest : public testing::Test {
 protected:
  KvCacheTest() : runtime_(IdealPlatform()) {}
  ~KvCacheTest() override { runtime_.TakeLedger(); }

  void Update(KeyValueCache& cache, int64_t positions, size_t layer = 0) {
    const Shape shape = {1, 2, positions, 64};
    const Tensor keys = Empty(runtime_, shape, DType::kBFloat16);
    const Tensor values = Empty(runtime_, shape, DType::kBFloat16);
    seen_ = cache.Update(layer, keys, values);
  }
  int64_t SeenPositions() const { return seen_.keys.size(-2); }
  int64_t Held() {
    seen_ = KeyValue();
    const Ledger& ledger = runtime_.ledger();
    return ledger.ComponentsAt(ledger.events().size() - 1)[static_cast<size_t>(Component::kKvCache)]
        .count();
  }

  Runtime runtime_;
  KeyValue seen_;
};

constexpr const char* kLlama = R"({"model_type": "llama", "num_hidden_layers": 1})";
constexpr const char* kWindow = R"({"model_type": "mistral", "sliding_window": 4})";

TEST_F(KvCacheTest, DynamicLayerGrowsByWhatItIsGiven) {
  const auto cache = KeyValueCache::Dynamic(ConfigOf(kLlama), 1);
  Update(*cache, 10);
  Update(*cache, 1);
  EXPECT_EQ(SeenPositions(), 11);
  EXPECT_EQ(cache->sequence_length(), 11);
  EXPECT_EQ(cache->Sizes(1, false).length, 12);
  EXPECT_EQ(Held(), 2 * 11 * 256);
}

TEST_F(KvCacheTest, DynamicLayerHoldsOldAndNewKeysForAMoment) {
  const auto cache = KeyValueCache::Dynamic(ConfigOf(kLlama), 1);
  Update(*cache, 1000);
  seen_ = KeyValue();
  Update(*cache, 1);
  // Old keys and values, new keys, and the two of one position.
  EXPECT_GE(runtime_.ledger().peak_allocated().count(), (1000 + 1000 + 1001) * 256);
}

TEST_F(KvCacheTest, SlidingLayerKeepsOneLessThanItsWindow) {
  const auto cache = KeyValueCache::Dynamic(ConfigOf(kWindow), 1);
  Update(*cache, 3);
  EXPECT_EQ(cache->Sizes(1, true).offset, 0);
  Update(*cache, 1);
  EXPECT_EQ(SeenPositions(), 4);
  EXPECT_EQ(cache->sequence_length(), 4);
  Update(*cache, 1);
  EXPECT_EQ(SeenPositions(), 4);  // three held and the new one
  EXPECT_EQ(cache->Sizes(1, true).length, 4);
  EXPECT_EQ(cache->Sizes(1, true).offset, 2);
}

TEST_F(KvCacheTest, SlidingLayerShowsTheWholeOfALongPrompt) {
  const auto cache = KeyValueCache::Dynamic(ConfigOf(kWindow), 1);
  Update(*cache, 100);
  EXPECT_EQ(SeenPositions(), 100);
  Update(*cache, 1);
  EXPECT_EQ(SeenPositions(), 4);
}

TEST_F(KvCacheTest, StaticLayerIsAllocatedOnceAtItsFullLength) {
  const auto cache = KeyValueCache::Static(ConfigOf(kLlama), 1, 64);
  Update(*cache, 10);
  const int64_t held = Held();
  EXPECT_GE(held, 2 * 64 * 256);
  Update(*cache, 1);
  EXPECT_EQ(SeenPositions(), 64);
  EXPECT_EQ(Held(), held);
  EXPECT_EQ(cache->sequence_length(), 11);
}

TEST_F(KvCacheTest, StaticSlidingLayerIsNoLongerThanItsWindow) {
  const auto cache = KeyValueCache::Static(ConfigOf(kWindow), 1, 64);
  Update(*cache, 2);
  EXPECT_EQ(SeenPositions(), 4);
  Update(*cache, 3);
  EXPECT_EQ(SeenPositions(), 5);  // two held and three new ones
  Update(*cache, 1);
  EXPECT_EQ(SeenPositions(), 4);
}

TEST_F(KvCacheTest, PassingStepsLeavesWhatPlayingThemWould) {
  for (const char* config : {kLlama, kWindow}) {
    const auto played = KeyValueCache::Dynamic(ConfigOf(config), 1);
    const auto passed = KeyValueCache::Dynamic(ConfigOf(config), 1);
    Update(*played, 2);
    Update(*passed, 2);
    for (int step = 0; step < 20; ++step) Update(*played, 1);
    passed->Pass(20);
    EXPECT_EQ(played->sequence_length(), passed->sequence_length());
    EXPECT_EQ(played->Held(0).keys.size(-2), passed->Held(0).keys.size(-2)) << config;
  }
}

TEST_F(KvCacheTest, ReorderTakesRowsOfTheBatch) {
  const auto cache = KeyValueCache::Dynamic(ConfigOf(kLlama), 1);
  Update(*cache, 10);
  cache->Reorder(Empty(runtime_, {3}, DType::kInt64));
  EXPECT_EQ(cache->Held(0).keys.size(0), 3);
}

TEST_F(KvCacheTest, LayersFollowTheConfigsTypes) {
  const auto cache = KeyValueCache::Dynamic(
      ConfigOf(R"({"model_type": "gemma2", "num_hidden_layers": 2, "sliding_window": 4})"), 2);
  Update(*cache, 8, 0);
  Update(*cache, 8, 1);
  EXPECT_EQ(cache->Held(0).keys.size(-2), 3);
  EXPECT_EQ(cache->Held(1).keys.size(-2), 8);
}

}  // namespace
}  // namespace headroom::predict
