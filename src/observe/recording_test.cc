// SPDX-License-Identifier: Apache-2.0
#include "observe/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace headroom::observe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Bytes kIdleUsed = MiB(4);

GpuMemory Card(std::vector<std::pair<uint32_t, Bytes>> processes) {
  GpuMemory card;
  card.name = "NVIDIA Test";
  card.uuid = "GPU-1";
  card.total = GiB(80);
  card.reserved = MiB(615);
  card.used = kIdleUsed;
  for (const auto& [pid, size] : processes) {
    GpuProcess process;
    process.pid = pid;
    process.bytes = size;
    card.processes.push_back(process);
    card.used += size;
  }
  card.free = card.total - card.used - *card.reserved;
  return card;
}

// Nobody has a name or a parent there.
const ProcessTable& Nowhere() {
  static const ProcessTable table("/no/such/proc");
  return table;
}

Recording Record(const std::vector<GpuMemory>& looks, Watched* watched, bool by_appearance) {
  Recorder recorder({Card({})}, watched, Nowhere(), by_appearance);
  double seconds = 0;
  for (const GpuMemory& look : looks) recorder.Add(seconds += 0.1, {look});
  recorder.Finish(seconds + 0.1, {Card({})});
  return recorder.Take();
}

TEST(Recorder, ReadsTheLadderOffARun) {
  WatchedIds ids({7});
  const Recording recording =
      Record({Card({}), Card({{7, MiB(300)}}), Card({{7, MiB(520)}}), Card({{7, MiB(520)}}),
              Card({{7, MiB(9000)}}), Card({{7, MiB(7000)}, {8, GiB(1)}}), Card({{8, GiB(1)}})},
             &ids, false);
  ASSERT_THAT(recording.devices, SizeIs(1));
  const DeviceRecording& device = recording.devices[0];
  EXPECT_EQ(device.Label(), "GPU 0");
  EXPECT_EQ(device.match, OwnMatch::kById);
  const DeviceLadder ladder = LadderOf(device);
  EXPECT_EQ(ladder.idle, kIdleUsed);
  ASSERT_TRUE(ladder.context.has_value());
  EXPECT_EQ(ladder.context->own, MiB(520));
  EXPECT_EQ(ladder.peak.own, MiB(9000));
  EXPECT_EQ(ladder.peak.used, MiB(9004));
  EXPECT_DOUBLE_EQ(ladder.peak.seconds, 0.5);
  EXPECT_EQ(ladder.end.own, MiB(7000));
  EXPECT_EQ(ladder.after, kIdleUsed);
  ASSERT_THAT(device.processes, SizeIs(2));
  EXPECT_TRUE(device.processes[0].own);
  EXPECT_EQ(device.processes[0].peak, MiB(9000));
  EXPECT_FALSE(device.processes[1].own);
}

TEST(Recorder, TakesWhatAppearedForTheCommandsInAContainer) {
  // Ids of the host: the command's own id is never listed.
  WatchedIds ids({7});
  const Recording recording = Record({Card({{4711, GiB(2)}})}, &ids, true);
  EXPECT_EQ(recording.devices[0].match, OwnMatch::kByAppearance);
  EXPECT_EQ(recording.devices[0].samples[0].own, GiB(2));
}

TEST(Recorder, NeverTakesStrangersForIdsTheUserGave) {
  WatchedIds ids({7});
  const Recording recording = Record({Card({{4711, GiB(2)}})}, &ids, false);
  EXPECT_EQ(recording.devices[0].match, OwnMatch::kNone);
  EXPECT_EQ(LadderOf(recording.devices[0]).peak.used, GiB(2) + kIdleUsed);
}

TEST(Recorder, TakesTheDifferenceWhereProcessesHaveNoFigures) {
  WatchedIds ids({7});
  GpuMemory untold = Card({{7, GiB(3)}});
  untold.processes[0].bytes.reset();
  GpuMemory refused = Card({{7, GiB(4)}});
  refused.processes.clear();
  refused.processes_missing = "Insufficient Permissions";
  const Recording recording = Record({untold, refused}, &ids, true);
  const DeviceRecording& device = recording.devices[0];
  EXPECT_EQ(device.match, OwnMatch::kByDifference);
  EXPECT_EQ(device.samples[0].own, GiB(3));
  EXPECT_EQ(device.samples[1].own, GiB(4));
  EXPECT_FALSE(device.processes[0].peak.has_value());
  EXPECT_EQ(device.processes_missing, "Insufficient Permissions");
}

TEST(Recorder, RecordsTheCardsAloneWhenNothingIsWatched) {
  const Recording recording = Record({Card({{9, GiB(1)}})}, nullptr, false);
  EXPECT_EQ(recording.devices[0].match, OwnMatch::kNone);
  EXPECT_EQ(recording.devices[0].samples[0].own, Bytes(0));
  EXPECT_FALSE(LadderOf(recording.devices[0]).context.has_value());
}

TEST(Recorder, RecordsEveryMigInstance) {
  GpuMemory card = Card({});
  card.index = 2;
  for (int i = 0; i < 2; ++i) {
    GpuMemory instance = Card({});
    instance.index = i;
    instance.uuid = "MIG-" + std::to_string(i);
    card.instances.push_back(instance);
  }
  Recorder recorder({card}, nullptr, Nowhere(), false);
  recorder.Add(0, {card});
  const Recording recording = recorder.Take();
  ASSERT_THAT(recording.devices, SizeIs(2));
  EXPECT_EQ(recording.devices[1].Label(), "GPU 2 MIG 1");
  EXPECT_THAT(recording.devices[1].samples, SizeIs(1));
}

TEST(Recorder, KeepsThePeakOfAVeryLongRun) {
  WatchedIds ids({7});
  Recorder recorder({Card({})}, &ids, Nowhere(), false);
  constexpr int kLooks = 100'000;
  for (int i = 0; i < kLooks; ++i) {
    const Bytes own = i == 12'345 ? GiB(70) : MiB(1000 + i % 7);
    const Bytes other = i == 54'321 ? GiB(5) : Bytes(0);
    recorder.Add(i * 0.05, {Card({{7, own}, {8, other}})});
  }
  const Recording recording = recorder.Take();
  const DeviceRecording& device = recording.devices[0];
  EXPECT_LE(device.samples.size(), size_t{1} << 14);
  EXPECT_EQ(LadderOf(device).peak.own, GiB(70));
  EXPECT_TRUE(std::ranges::is_sorted(device.samples, {}, &DeviceSample::seconds));
  const auto used = std::ranges::max(device.samples, {}, &DeviceSample::used);
  EXPECT_GE(used.used, GiB(70));
  EXPECT_TRUE(std::ranges::any_of(device.samples, [](const DeviceSample& sample) {
    return sample.used > GiB(5) && sample.own < GiB(2);
  }));
}

TEST(WatchedTree, FindsDescendantsAndRemembersThem) {
  const ProcessTable table;
  WatchedTree tree(static_cast<uint32_t>(::getppid()), table);
  const auto self = static_cast<uint32_t>(::getpid());
  EXPECT_THAT(tree.Among(std::vector<uint32_t>{1, self}), ElementsAre(self));
  WatchedTree other(self, table);
  EXPECT_THAT(other.Among(std::vector<uint32_t>{static_cast<uint32_t>(::getppid())}), IsEmpty());
}

// ---- The file ----

Recording Sample() {
  WatchedIds ids({7});
  Recording recording =
      Record({Card({{7, MiB(520)}}), Card({{7, MiB(520)}}), Card({{7, GiB(3)}})}, &ids, false);
  recording.command = {"python", "train.py"};
  recording.exit_code = 3;
  recording.driver = "580.1";
  recording.started = 1764633600.25;
  return recording;
}

TEST(RecordingJson, ReadsWhatItWrote) {
  const Recording before = Sample();
  const std::string text = ToJson(before);
  const Result<Recording> after = RecordingFromJson(text, "run.json");
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_EQ(ToJson(*after), text);
  EXPECT_THAT(after->command, ElementsAre("python", "train.py"));
  EXPECT_EQ(after->exit_code, 3);
  EXPECT_EQ(LadderOf(after->devices[0]).peak.own, GiB(3));
}

TEST(RecordingJson, RefusesOtherFilesInOneLine) {
  const auto message = [](std::string_view text) {
    const Result<Recording> read = RecordingFromJson(text, "x.json");
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_THAT(message("{"), HasSubstr("x.json: not JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("not a recording of headroom watch"));
  EXPECT_THAT(message(R"({"format": "headroom.ledger"})"), HasSubstr("not a recording"));
  EXPECT_THAT(message(R"({"format": "headroom.watch", "schema": 99})"),
              HasSubstr("schema 99: this headroom reads schema 1"));
  EXPECT_THAT(message(R"({"format": "headroom.watch", "schema": 1})"), HasSubstr("\"command\""));
}

TEST(RecordingJson, RefusesBrokenColumnsAndSizes) {
  const std::string good = ToJson(Sample());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const Result<Recording> read = RecordingFromJson(text, "x.json");
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_THAT(with("\"own\":[545259520,", "\"own\":["), HasSubstr("unequal length"));
  EXPECT_THAT(with("\"total\":85899345920", "\"total\":-5"), HasSubstr("no size"));
  EXPECT_THAT(with("\"total\":85899345920", "\"total\":18446744073709551615"),
              HasSubstr("no size"));
  EXPECT_THAT(with("\"seconds\":[0.1,", "\"seconds\":[9.1,"), HasSubstr("back in time"));
  EXPECT_THAT(with("\"matched_by\":\"pid\"", "\"matched_by\":\"luck\""), HasSubstr("luck"));
  EXPECT_THAT(with("\"exit_code\":3", "\"exit_code\":1e300"), HasSubstr("no number"));
}

TEST(RecordingJson, SurvivesDamage) {
  const std::string good = ToJson(Sample());
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (int n = 0; n < 3; ++n) text[random() % text.size()] = static_cast<char>(random() % 128);
    if (i % 3 == 0) text.resize(random() % text.size());
    const Result<Recording> read = RecordingFromJson(text, "x.json");
    if (read.ok()) {
      EXPECT_TRUE(RecordingFromJson(ToJson(*read), "x.json").ok());
    } else {
      EXPECT_EQ(read.error().message.find('\n'), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace headroom::observe
