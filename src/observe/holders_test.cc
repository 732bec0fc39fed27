// SPDX-License-Identifier: Apache-2.0
#include "observe/holders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace headroom::observe {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

Snapshot Read(const std::string& name) {
  return ReadSnapshot(std::string(HEADROOM_TEST_DATA) + "/snapshots/" + name).value();
}

TEST(Holders, NamesLogitsAndLossInAnOutOfMemory) {
  const Snapshot snapshot = Read("oom-gpt2.pickle.gz");
  const Replay replay = ReplayDevice(snapshot, 0).value();
  const Classification classes = Classify(snapshot, replay);
  const std::vector<Holder> holders = HoldersAt(replay, classes, replay.ooms[0].event);
  ASSERT_GT(holders.size(), 3U);
  EXPECT_TRUE(std::is_sorted(holders.begin(), holders.end(),
                             [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; }));
  Bytes logits;
  Bytes all;
  for (const Holder& holder : holders) {
    all += holder.bytes;
    if (holder.kind == Kind::kLogitsLoss) logits += holder.bytes;
  }
  // The 16-bit logits and their fp32 copy; the log-softmax that failed asked for as much again.
  EXPECT_NEAR(logits.mib(), 4.0 * 1024 * 50257 * (2 + 4) / (1 << 20), 2.0);
  EXPECT_THAT(DescribeStack(snapshot, replay.ooms[0].stack), HasSubstr("cross_entropy"));
  Bytes end;
  for (const BlockLife& block : replay.blocks) {
    if (block.free_event == kNoEvent || block.free_event > replay.ooms[0].event) {
      if (block.from_before() || block.alloc_event < replay.ooms[0].event)
        end += Bytes(block.bytes);
    }
  }
  EXPECT_EQ(all, end);
}

TEST(Holders, DescribesStacks) {
  const Snapshot snapshot = Read("tiny-protocol4.pickle");
  EXPECT_EQ(DescribeStack(snapshot, snapshot.events[1].stack),
            "linear.py:125 forward < train.py:7 <module>");
  EXPECT_EQ(DescribeStack(snapshot, snapshot.events[1].stack, 1), "linear.py:125 forward");
  EXPECT_EQ(DescribeStack(snapshot, snapshot.events[2].stack),
            "torch::autograd::Engine::thread_main");
  EXPECT_EQ(DescribeStack(snapshot, StackId()), "no stack");
}

// Four steps of a program whose every step leaves one more block behind.
Snapshot Leaking(int64_t leak) {
  Snapshot s = Read("tiny-protocol4.pickle");
  const StackId forward = s.events[1].stack;
  const StackId engine = s.events[2].stack;
  const StackId optimizer = s.events[4].stack;
  s.segments.clear();
  s.annotations.clear();
  s.events = {};
  uint64_t address = 512;
  const auto add = [&](Action action, uint64_t at, int64_t size, StackId stack) {
    s.events.Add({.addr = at, .size = size, .stack = stack, .action = action}, 0);
  };
  for (int step = 0; step < 4; ++step) {
    add(Action::kAlloc, address += 4096, 1024, forward);
    const uint64_t saved = address;
    if (leak > 0) add(Action::kAlloc, address += 4096, leak, forward);
    add(Action::kAlloc, address += 4096, 512, engine);
    const uint64_t gradient = address;
    add(Action::kFreeCompleted, saved, 1024, engine);
    add(Action::kAlloc, address += 4096, 512, optimizer);
    add(Action::kFreeCompleted, address, 512, optimizer);
    add(Action::kFreeCompleted, gradient, 512, StackId());
  }
  s.devices = {{0, static_cast<uint32_t>(s.events.count())}};
  return s;
}

TEST(Growth, FindsWhatEveryStepLeavesBehind) {
  const Snapshot snapshot = Leaking(2048);
  const Replay replay = ReplayDevice(snapshot, 0).value();
  const Classification classes = Classify(snapshot, replay);
  EXPECT_EQ(classes.phases.steps, 4);
  const std::vector<Growth> growth = FindGrowth(replay, classes);
  ASSERT_EQ(growth.size(), 1U);
  EXPECT_EQ(growth[0].per_step(), Bytes(2048));
  EXPECT_EQ(growth[0].after_step.size(), 3U);
  EXPECT_THAT(DescribeStack(snapshot, growth[0].stack), HasSubstr("linear.py:125"));
}

TEST(Growth, IsSilentWithoutALeak) {
  const Snapshot snapshot = Leaking(0);
  const Replay replay = ReplayDevice(snapshot, 0).value();
  EXPECT_THAT(FindGrowth(replay, Classify(snapshot, replay)), IsEmpty());
}

TEST(AllocatorSteps, PlaysFreesBeforeAllocationsOfTheSameEvent) {
  const Snapshot snapshot = Read("tiny-protocol4.pickle");
  const Replay replay = ReplayDevice(snapshot, 0).value();
  const std::vector<AllocatorStep> steps = AllocatorSteps(replay);
  ASSERT_EQ(steps.size(), 4U);
  int64_t live = 0;
  int64_t peak = 0;
  for (const AllocatorStep& step : steps) {
    live += step.is_alloc ? replay.blocks[step.block].bytes : -replay.blocks[step.block].bytes;
    peak = std::max(peak, live);
  }
  EXPECT_EQ(Bytes(peak), replay.peak_allocated);
  EXPECT_EQ(Bytes(live), replay.end_allocated);
}

}  // namespace
}  // namespace headroom::observe
