// SPDX-License-Identifier: Apache-2.0
#include "observe/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "observe/process_table.h"

namespace headroom::observe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NvmlTest : public testing::Test {
 protected:
  ~NvmlTest() override {
    for (const std::string& name : set_) ::unsetenv(name.c_str());
  }
  void Play(const std::string& name, const std::string& value) {
    set_.push_back("FAKE_NVML_" + name);
    ::setenv(set_.back().c_str(), value.c_str(), 1);
  }
  static Nvml Open() { return Nvml::Open(HEADROOM_FAKE_NVML).value(); }

 private:
  std::vector<std::string> set_;
};

TEST_F(NvmlTest, SaysInOneLineThatThereIsNoDriver) {
  const Result<Nvml> nvml = Nvml::Open("libno-such-nvml.so.1");
  ASSERT_FALSE(nvml.ok());
  EXPECT_THAT(nvml.error().message, HasSubstr("no NVIDIA driver on this machine"));
  EXPECT_EQ(nvml.error().message.find('\n'), std::string::npos);
  EXPECT_THAT(Nvml::Open("libc.so.6").error().message, HasSubstr("is no NVML"));
}

TEST_F(NvmlTest, SaysWhyTheDriverDoesNotAnswer) {
  Play("INIT", "9");
  const Result<Nvml> nvml = Nvml::Open(HEADROOM_FAKE_NVML);
  ASSERT_FALSE(nvml.ok());
  EXPECT_EQ(nvml.error().message, "the NVIDIA driver does not answer: Driver Not Loaded");
}

TEST_F(NvmlTest, KeepsTheDriversReserveApart) {
  Play("PIDS", "12,345");
  const Nvml nvml = Open();
  EXPECT_EQ(nvml.driver_version(), "580.0.fake");
  EXPECT_EQ(*nvml.DeviceCount(), 1);
  const GpuMemory gpu = nvml.Read(0).value();
  EXPECT_EQ(gpu.name, "NVIDIA Fake");
  EXPECT_EQ(gpu.uuid, "GPU-1");
  EXPECT_EQ(gpu.total, GiB(80));
  EXPECT_EQ(gpu.used, GiB(3) + MiB(512));
  EXPECT_EQ(gpu.reserved, GiB(1));
  EXPECT_EQ(gpu.free + gpu.used + *gpu.reserved, gpu.total);
  ASSERT_EQ(gpu.processes.size(), 2U);
  EXPECT_EQ(gpu.processes[0].pid, 12U);
  EXPECT_EQ(gpu.processes[0].bytes, GiB(1));
  EXPECT_EQ(gpu.processes[1].bytes, GiB(2));
  EXPECT_THAT(gpu.processes_missing, IsEmpty());
}

TEST_F(NvmlTest, FallsBackOnOldDrivers) {
  Play("OLD", "1");
  const GpuMemory gpu = Open().Read(0).value();
  EXPECT_FALSE(gpu.reserved.has_value());
  EXPECT_EQ(gpu.used, GiB(1) + MiB(512));
}

TEST_F(NvmlTest, ToleratesMissingFigures) {
  Play("PIDS", "12");
  Play("HIDDEN", "1");
  const GpuMemory gpu = Open().Read(0).value();
  ASSERT_EQ(gpu.processes.size(), 1U);
  EXPECT_FALSE(gpu.processes[0].bytes.has_value());
}

TEST_F(NvmlTest, SaysWhyProcessesAreMissing) {
  Play("REFUSE", "1");
  const GpuMemory gpu = Open().Read(0).value();
  EXPECT_THAT(gpu.processes, IsEmpty());
  EXPECT_EQ(gpu.processes_missing, "Insufficient Permissions");
}

TEST_F(NvmlTest, ReadsMigInstances) {
  Play("MIG", "1");
  Play("PIDS", "5");
  const GpuMemory gpu = Open().Read(0).value();
  EXPECT_THAT(gpu.processes, IsEmpty());
  ASSERT_EQ(gpu.instances.size(), 2U);
  EXPECT_EQ(gpu.instances[0].name, "NVIDIA Fake MIG 1g.10gb");
  EXPECT_EQ(gpu.instances[0].total, GiB(10));
  ASSERT_EQ(gpu.instances[0].processes.size(), 1U);
  EXPECT_EQ(gpu.instances[0].processes[0].gpu_instance, 7U);
  EXPECT_THAT(gpu.instances[1].processes, IsEmpty());
}

TEST_F(NvmlTest, NamesTheGpusThereAre) {
  Play("DEVICES", "2");
  const Nvml nvml = Open();
  EXPECT_EQ(nvml.ReadAll()->size(), 2U);
  const Result<GpuMemory> beyond = nvml.Read(5);
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().message, "there is no GPU 5: this machine has 2 (0 to 1)");
}

TEST_F(NvmlTest, FindsWhatThisProcessHolds) {
  Play("PIDS", "12," + std::to_string(::getpid()));
  EXPECT_EQ(ThisProcessMemory(0, HEADROOM_FAKE_NVML), GiB(2));
  Play("PIDS", "12");
  EXPECT_EQ(ThisProcessMemory(0, HEADROOM_FAKE_NVML), Bytes(0));
  Play("MIG", "1");
  Play("PIDS", std::to_string(::getpid()));
  EXPECT_EQ(ThisProcessMemory(0, HEADROOM_FAKE_NVML), GiB(1));
}

TEST_F(NvmlTest, HidesWhatThisProcessHoldsWhereTheDriverDoes) {
  EXPECT_EQ(ThisProcessMemory(0, "libno-such-nvml.so.1"), std::nullopt);
  EXPECT_EQ(ThisProcessMemory(5, HEADROOM_FAKE_NVML), std::nullopt);
  Play("PIDS", std::to_string(::getpid()));
  Play("HIDDEN", "1");
  EXPECT_EQ(ThisProcessMemory(0, HEADROOM_FAKE_NVML), std::nullopt);
  Play("REFUSE", "1");
  EXPECT_EQ(ThisProcessMemory(0, HEADROOM_FAKE_NVML), std::nullopt);
}

TEST(ProcessTable, FindsOurselves) {
  const ProcessTable table;
  const auto pid = static_cast<uint32_t>(::getpid());
  EXPECT_TRUE(table.IsVisible(pid));
  EXPECT_THAT(table.Name(pid), HasSubstr("observe_test"));
  EXPECT_TRUE(table.Descends(pid, pid));
  EXPECT_TRUE(table.Descends(pid, static_cast<uint32_t>(::getppid())));
  EXPECT_FALSE(table.Descends(static_cast<uint32_t>(::getppid()), pid));
  EXPECT_FALSE(table.IsVisible(0xfffffff0));
  EXPECT_EQ(table.Name(0xfffffff0), "");
}

TEST(ProcessTable, FollowsChildrenWithOddNames) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "proc";
  const auto write = [&](const char* pid, const char* stat) {
    std::filesystem::create_directories(root / pid);
    std::ofstream(root / pid / "stat") << stat;
  };
  write("10", "10 (sh) S 1 10");
  write("11", "11 (py) th) on) S 10 10");
  write("12", "12 (worker) S 11 10");
  write("20", "20 (other) S 1 20");
  write("30", "nonsense");
  std::filesystem::create_directories(root / "self");
  const ProcessTable table(root);
  EXPECT_TRUE(table.Descends(12, 10));
  EXPECT_TRUE(table.Descends(11, 10));
  EXPECT_FALSE(table.Descends(20, 10));
  EXPECT_FALSE(table.Descends(30, 10));
  EXPECT_FALSE(table.Descends(99, 10));
  std::filesystem::remove_all(root);
}

GpuMemory With(std::vector<std::pair<uint32_t, int64_t>> processes) {
  GpuMemory memory;
  for (const auto& [pid, gib] : processes) {
    GpuProcess process;
    process.pid = pid;
    process.bytes = GiB(gib);
    memory.processes.push_back(process);
  }
  return memory;
}

TEST(FindOwn, PrefersIdsAndFallsBackOnWhatAppeared) {
  const ProcessTable nobody("/no/such/proc");
  const std::vector<uint32_t> family = {100, 101};
  const OwnMemory by_id =
      FindOwn(With({{7, 3}}), With({{7, 3}, {100, 2}, {101, 1}}), family, nobody);
  EXPECT_EQ(by_id.match, OwnMatch::kById);
  EXPECT_EQ(by_id.bytes, GiB(3));
  EXPECT_THAT(by_id.pids, ElementsAre(100, 101));

  const OwnMemory appeared = FindOwn(With({{7, 3}}), With({{7, 3}, {4711, 2}}), family, nobody);
  EXPECT_EQ(appeared.match, OwnMatch::kByAppearance);
  EXPECT_THAT(appeared.pids, ElementsAre(4711));

  const OwnMemory none = FindOwn(With({{7, 3}}), With({{7, 4}}), family, nobody);
  EXPECT_EQ(none.match, OwnMatch::kNone);
}

}  // namespace
}  // namespace headroom::observe
