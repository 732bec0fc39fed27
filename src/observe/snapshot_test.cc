// SPDX-License-Identifier: Apache-2.0
#include "observe/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace headroom::observe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMiB = 1 << 20;
constexpr uint64_t kBase = 0x7F0000000000;

std::string DataPath(const std::string& name) {
  return std::string(HEADROOM_TEST_DATA) + "/snapshots/" + name;
}

std::string Content(const std::string& name) {
  std::ifstream in(DataPath(name), std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

Snapshot Read(const std::string& name) {
  Result<Snapshot> snapshot = ReadSnapshot(DataPath(name));
  EXPECT_TRUE(snapshot.ok()) << snapshot.error().message;
  return std::move(snapshot).value();
}

std::string Failure(const std::string& bytes) {
  const Result<Snapshot> snapshot = ParseSnapshot(bytes, "file");
  return snapshot.ok() ? "" : snapshot.error().message;
}

std::string FrameText(const Snapshot& s, StackId stack, size_t i) {
  const Frame& frame = s.frames[s.stacks[stack][i]];
  return std::string(s.strings.Get(frame.filename)) + ":" + std::to_string(frame.line) + ":" +
         std::string(s.strings.Get(frame.name));
}

template <typename T>
std::vector<T> Column(const EventTable& events, T Event::*field) {
  std::vector<T> column;
  for (size_t i = 0; i < events.count(); ++i) column.push_back(events[i].*field);
  return column;
}

class TinySnapshot : public testing::TestWithParam<const char*> {};

TEST_P(TinySnapshot, ReadsTheSameFromEveryProtocolAndCarrier) {
  const Snapshot s = Read(GetParam());
  ASSERT_EQ(s.devices.size(), 2U);
  EXPECT_EQ(s.devices[0].first, 0U);
  EXPECT_EQ(s.devices[0].count, 5U);  // the free's two events are one row
  EXPECT_EQ(s.devices[1].count, 0U);
  EXPECT_THAT(Column(s.events, &Event::action),
              ElementsAre(Action::kSegmentAlloc, Action::kAlloc, Action::kAlloc,
                          Action::kFreeCompleted, Action::kAlloc));
  EXPECT_THAT(Column(s.events, &Event::size),
              ElementsAre(20 * kMiB, 4 * kMiB - 100, 8 * kMiB, 4 * kMiB - 100, 2 * kMiB));
  EXPECT_THAT(Column(s.events, &Event::addr),
              ElementsAre(kBase, kBase, kBase + 4 * kMiB, kBase, kBase));
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(s.events.times()[i], 100 + i);
  EXPECT_EQ(s.events[0].stack, s.events[1].stack);
  EXPECT_NE(s.events[1].stack, s.events[2].stack);
  EXPECT_EQ(s.stacks.size(), 4U);  // the empty one and three
  EXPECT_EQ(FrameText(s, s.events[4].stack, 0), "/x/torch/optim/adamw.py:243:step");
  EXPECT_EQ(FrameText(s, s.events[4].stack, 1), "train.py:7:<module>");

  ASSERT_EQ(s.segments.size(), 1U);
  EXPECT_EQ(s.segments[0].total, 20 * kMiB);
  EXPECT_TRUE(s.segments[0].is_large);
  ASSERT_EQ(s.segments[0].blocks.count, 4U);
  EXPECT_EQ(s.blocks[2].size, 8 * kMiB);
  EXPECT_EQ(s.blocks[2].state, Block::State::kActive);
  EXPECT_EQ(s.blocks[3].address, kBase + 12 * kMiB);
  EXPECT_EQ(s.blocks[3].state, Block::State::kInactive);

  ASSERT_EQ(s.annotations.size(), 2U);
  EXPECT_TRUE(s.annotations[0].is_start);
  EXPECT_EQ(s.strings.Get(s.annotations[0].name), "Optimizer.step#AdamW.step");
  ASSERT_TRUE(s.settings.has_value());
  EXPECT_FALSE(s.settings->max_split_size.has_value());
  EXPECT_EQ(s.settings->garbage_collection_threshold, 0.5);
  EXPECT_THAT(s.settings->roundup_power2_divisions, ElementsAre(testing::Pair(256, 8)));
  EXPECT_EQ(s.era, "PyTorch 2.10 or 2.11");
  EXPECT_THAT(s.warnings, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Files, TinySnapshot,
                         testing::Values("tiny-protocol0.pickle", "tiny-protocol1.pickle",
                                         "tiny-protocol2.pickle", "tiny-protocol3.pickle",
                                         "tiny-protocol4.pickle", "tiny-protocol5.pickle",
                                         "tiny.pickle.gz", "tiny.html"));

TEST(Snapshot, ReadsAListOfSegments) {
  const Snapshot s = Read("tiny-list.pickle");
  EXPECT_FALSE(s.has_trace());
  ASSERT_EQ(s.segments.size(), 1U);
  EXPECT_EQ(s.blocks.size(), 4U);
}

TEST(Snapshot, ReadsBlocksWithAHistoryInsteadOfFrames) {
  const Snapshot s = Read("tiny-history.pickle");
  EXPECT_EQ(s.era, "PyTorch 1.13 to 2.0");
  ASSERT_EQ(s.blocks.size(), 2U);
  EXPECT_EQ(s.blocks[0].address, kBase);
  EXPECT_EQ(s.blocks[0].requested, 2 * kMiB - 8);
  EXPECT_EQ(FrameText(s, s.blocks[0].stack, 0), "/x/torch/nn/modules/linear.py:125:forward");
  EXPECT_EQ(s.blocks[1].address, kBase + 2 * kMiB);
  EXPECT_EQ(s.events.count(), 1U);
}

TEST(Snapshot, ReadsWideNumbersMetadataPoolsAndHostMemory) {
  const Snapshot s = Read("tiny-odd.pickle");
  EXPECT_EQ(s.era, "PyTorch 2.14 or newer");
  ASSERT_EQ(s.devices.size(), 2U);
  EXPECT_EQ(s.devices[0].count, 0U);
  ASSERT_EQ(s.devices[1].count, 4U);
  EXPECT_EQ(s.events[0].addr, (uint64_t{1} << 63) + 512);
  EXPECT_THAT(Column(s.events, &Event::action),
              ElementsAre(Action::kSegmentMap, Action::kAlloc, Action::kOther, Action::kOom,
                          Action::kAlloc));
  EXPECT_EQ(s.events[3].addr, 12345U);
  EXPECT_EQ(s.streams[s.events[3].stream], (uint64_t{1} << 63) + 512);
  const EventContext& context = s.contexts[s.events[1].context];
  EXPECT_EQ(s.strings.Get(context.user_metadata), "layer=3, op=mm");
  EXPECT_EQ(context.pool_second, 7U);
  EXPECT_TRUE(s.segments[0].is_expandable);
  EXPECT_EQ(s.blocks[0].state, Block::State::kPendingFree);
  EXPECT_FALSE(s.settings->max_split_size.has_value());
  EXPECT_TRUE(s.settings->trace_overflowed);
  EXPECT_EQ(s.settings->trace_max_entries, 100000);
  EXPECT_EQ(s.host_segments.size(), 1U);
  ASSERT_EQ(s.host_devices.size(), 1U);
  EXPECT_EQ(s.host_devices[0].first, 4U);
  EXPECT_THAT(s.warnings, ElementsAre(HasSubstr("events of an unknown kind, left out: 1")));
}

TEST(Snapshot, ReadsRealFiles) {
  const Snapshot mpt = Read("mpt-small--b4-s512-bf16.pickle.gz");
  EXPECT_EQ(mpt.events.count(), 4080U);  // 5,920 in the file
  EXPECT_EQ(mpt.segments.size(), 102U);
  EXPECT_EQ(mpt.blocks.size(), 348U);
  EXPECT_EQ(mpt.annotations.size(), 10U);
  EXPECT_EQ(mpt.protocol, 4);
  const Snapshot oom = Read("oom-gpt2.pickle.gz");
  EXPECT_EQ(oom.events.count(), 1021U);  // 1,240 in the file
  const std::vector<Action> actions = Column(oom.events, &Event::action);
  const auto at = std::ranges::find(actions, Action::kOom);
  ASSERT_NE(at, actions.end());
  EXPECT_EQ(oom.events[static_cast<size_t>(at - actions.begin())].size, 4 * 1024 * 50257 * 4);
}

TEST(Snapshot, SaysWhatAnotherFileIs) {
  EXPECT_EQ(Failure(""), "file: the file is empty");
  EXPECT_THAT(Failure("CUDA out of memory"), HasSubstr("no memory snapshot"));
  EXPECT_THAT(Failure("{\"segments\": []}"), HasSubstr("JSON"));
  EXPECT_THAT(Failure(std::string("PK\x03\x04 zip")), HasSubstr("torch.save"));
  EXPECT_THAT(Failure("\x80\x04K\x01."), HasSubstr("a pickle of an integer, no memory snapshot"));
  EXPECT_THAT(Failure("\x80\x04}(\x8c\x01kK\x01u."), HasSubstr("no \"segments\""));
  EXPECT_THAT(Failure("<html></html>"), HasSubstr("without a memory snapshot"));
  EXPECT_THAT(ReadSnapshot("/no/such/file").error().message, HasSubstr("no such file"));
  EXPECT_THAT(ReadSnapshot("/").error().message, HasSubstr("is a folder"));
}

TEST(Snapshot, RefusesToImport) {
  EXPECT_EQ(Failure("\x80\x04}(\x8c\x08segments\x8c\x05posix\x8c\x06system\x93."),
            "file: this file wants to import posix.system (at byte 29): not opened");
}

TEST(Snapshot, FailsOnEveryTruncation) {
  for (const char* name : {"tiny-protocol4.pickle", "tiny-protocol0.pickle", "tiny-odd.pickle"}) {
    const std::string whole = Content(name);
    ASSERT_GT(whole.size(), 500U);
    for (size_t length = 1; length < whole.size(); ++length) {
      EXPECT_NE(Failure(whole.substr(0, length)), "") << name << " " << length;
    }
  }
}

TEST(Snapshot, RefusesContradictions) {
  // {"device_traces": [[e, f, e]]}
  const std::string zero(1, '\0');
  const std::string twice =
      "\x80\x04}(\x8c\x0d"
      "device_traces]](}\x94(\x8c\x06"
      "action\x8c\x05"
      "allocu}(\x8c\x06"
      "action\x8c\x05"
      "allocuh" +
      zero + "eau.";
  EXPECT_THAT(Failure(twice), HasSubstr("stands in two lists"));
  const std::string huge =
      "\x80\x04}(\x8c\x06"
      "action\x8c\x05"
      "alloc\x8c\x04size\x8a\x08" +
      std::string("\0\0\0\0\0\0\0\x7f", 8) + "u.";
  EXPECT_THAT(Failure(huge), HasSubstr("which no device has"));
}

TEST(Snapshot, SurvivesDictsThatContainThemselves) {
  // d = {"junk": None}; l = [d]; d["frames"] = l; d["action"] = "alloc", then asked for as an
  // event.
  const std::string zero(1, '\0');
  const std::string loop = "\x80\x04}\x94\x8c\x04junkNs]\x94h" + zero + "ah" + zero +
                           "\x8c\x06"
                           "framesh\x01sh" +
                           zero +
                           "\x8c\x06"
                           "action\x8c\x05"
                           "allocs" +
                           "}(\x8c\x0d"
                           "device_traces](h\x01"
                           "eu.";
  EXPECT_NE(Failure(loop), "crash");
}

}  // namespace
}  // namespace headroom::observe
