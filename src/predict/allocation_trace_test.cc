// SPDX-License-Identifier: Apache-2.0
#include "predict/allocation_trace.h"

#include <gtest/gtest.h>

#include <vector>

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

AllocatorOptions Expandable() {
  AllocatorOptions options;
  options.backend = AllocatorOptions::Backend::kExpandableSegments;
  return options;
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
  const AllocatorOptions options = Expandable();
  // Pages of 20 MiB: the third begins behind the second and takes one page more.
  EXPECT_TRUE(Example(options).Completes(MiB(40)));
  EXPECT_FALSE(Example(options).Completes(MiB(38)));
}

// A run of three steps that is small enough to be played under many caps.
Result<Prediction> SmallRun(const Platform& platform) {
  HEADROOM_ASSIGN_OR_RETURN(
      const ModelConfig config,
      ModelConfig::FromJson(
          R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 128, "n_head": 2, "vocab_size": 5000})",
          "test"));
  Recipe recipe;
  recipe.per_device_train_batch_size = 4;
  recipe.sequence_length = 256;
  recipe.precision = Precision::kBf16;
  return Predict(config, recipe, platform);
}

TEST(AllocationTrace, ReplaysWhatThePlayUnderACapDoes) {
  Platform platform = MeasuredPlatform();
  const Result<Prediction> free = SmallRun(platform);
  ASSERT_TRUE(free.ok());
  const Bytes peak = free->ledger.peak_reserved();
  for (Bytes cap = free->ledger.peak_allocated() - MiB(6); cap <= peak + MiB(2); cap += MiB(2)) {
    platform.memory_limit = cap;
    const Result<Prediction> capped = SmallRun(platform);
    ASSERT_TRUE(capped.ok());
    EXPECT_EQ(free->trace.Completes(cap), !capped->out_of_memory.has_value()) << cap.mib();
  }
}

// The search plays what all caps have in common once; whole replays find the same.
TEST(AllocationTrace, SearchesAsWholeReplaysDo) {
  for (const AllocatorOptions& options : {AllocatorOptions(), Expandable()}) {
    Platform platform = MeasuredPlatform();
    platform.allocator = options;
    const Result<Prediction> run = SmallRun(platform);
    ASSERT_TRUE(run.ok());
    constexpr int64_t kUnit = MiB(2).count();
    int64_t low = (run->ledger.peak_allocated().count() + kUnit - 1) / kUnit - 1;
    int64_t high = (run->ledger.peak_reserved().count() + kUnit - 1) / kUnit;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (run->trace.Completes(Bytes(middle * kUnit)) ? high : low) = middle;
    }
    EXPECT_EQ(run->trace.SmallestCap(run->ledger.peak_allocated() - Bytes(1),
                                     run->ledger.peak_reserved()),
              Bytes(high * kUnit));
  }
}

TEST(AllocationTrace, TellsWhatARunUnderOtherSettingsNeeds) {
  Platform platform = MeasuredPlatform();
  const Result<Prediction> native = SmallRun(platform);
  ASSERT_TRUE(native.ok());
  std::vector<bool> inputs;
  for (const MemoryEvent& event : native->ledger.events()) {
    if (event.type != MemoryEvent::Type::kAlloc) continue;
    inputs.push_back(event.component == Component::kInputs);
  }
  platform.allocator = Expandable();
  for (const Bytes cap : {MiB(1024), MiB(60)}) {
    platform.memory_limit = cap;
    const Result<Prediction> run = SmallRun(platform);
    ASSERT_TRUE(run.ok());
    const Ledger& ledger = run->ledger;
    const AllocationTrace::Usage usage = native->trace.UsageUnder(Expandable(), cap, inputs);
    EXPECT_EQ(usage.completes, !run->out_of_memory.has_value());
    EXPECT_EQ(usage.peak_allocated, ledger.peak_allocated());
    EXPECT_EQ(usage.peak_reserved, ledger.peak_reserved());
    EXPECT_EQ(usage.marked_at_peak,
              ledger.ComponentsAt(ledger.peak_event())[static_cast<size_t>(Component::kInputs)]);
  }
}

}  // namespace
}  // namespace headroom
