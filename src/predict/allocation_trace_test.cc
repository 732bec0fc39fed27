// SPDX-License-Identifier: Apache-2.0
#include "predict/allocation_trace.h"

#include <gtest/gtest.h>

#include "model/config.h"
#include "predict/predict.h"

namespace headroom {
namespace {

// The trace of the header's example.
AllocationTrace Example(AllocatorOptions options = {}) {
  AllocationTrace trace(options);
  trace.Alloc(MiB(12));
  trace.Alloc(MiB(2));
  trace.Free(0);
  trace.Alloc(MiB(19));
  return trace;
}

TEST(AllocationTrace, FailsWhereASegmentIsOverTheCap) {
  EXPECT_FALSE(Example().Completes(MiB(11)));
  EXPECT_FALSE(Example().Completes(MiB(31)));
}

TEST(AllocationTrace, GivesCachedSegmentsBackBeforeItFails) {
  // Beside one another the three take 12 + 20 + 20; the first goes back for the third.
  EXPECT_TRUE(Example().Completes(MiB(40)));
  EXPECT_FALSE(Example().Completes(MiB(39)));
}

TEST(AllocationTrace, FindsTheSmallestCap) {
  EXPECT_EQ(Example().SmallestCap(MiB(21) - Bytes(1), MiB(52)), MiB(40));
}

TEST(AllocationTrace, FindsASmallestCapThatIsWhatTheRunAllocates) {
  AllocationTrace trace;
  trace.Alloc(MiB(32));
  EXPECT_EQ(trace.SmallestCap(MiB(32) - Bytes(1), MiB(32)), MiB(32));
}

TEST(AllocationTrace, KeepsTheSettingsOfTheRun) {
  AllocatorOptions options;
  options.backend = AllocatorOptions::Backend::kExpandableSegments;
  // Pages of 20 MiB: the third begins behind the second and takes one page more.
  EXPECT_TRUE(Example(options).Completes(MiB(40)));
  EXPECT_FALSE(Example(options).Completes(MiB(38)));
}

TEST(AllocationTrace, ReplaysWhatThePlayUnderACapDoes) {
  const auto config = ModelConfig::FromJson(
      R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 128, "n_head": 2, "vocab_size": 5000})",
      "test");
  ASSERT_TRUE(config.ok());
  Recipe recipe;
  recipe.per_device_train_batch_size = 4;
  recipe.sequence_length = 256;
  recipe.precision = Precision::kBf16;
  Platform platform = MeasuredPlatform();
  const Result<Prediction> free = Predict(*config, recipe, platform);
  ASSERT_TRUE(free.ok());
  const Bytes peak = free->ledger.peak_reserved();
  for (Bytes cap = free->ledger.peak_allocated() - MiB(6); cap <= peak + MiB(2); cap += MiB(2)) {
    platform.memory_limit = cap;
    const Result<Prediction> capped = Predict(*config, recipe, platform);
    ASSERT_TRUE(capped.ok());
    EXPECT_EQ(free->trace.Completes(cap), !capped->out_of_memory.has_value()) << cap.mib();
  }
}

}  // namespace
}  // namespace headroom
