// SPDX-License-Identifier: Apache-2.0
//
// A library with NVML's functions and no driver behind it, for tests. Environment variables say
// what it plays:
//
//   FAKE_NVML_INIT=9         nvmlInit_v2 returns this code
//   FAKE_NVML_DEVICES=2      number of GPUs (default 1)
//   FAKE_NVML_OLD=1          no reserved memory (nvmlDeviceGetMemoryInfo_v2 is not supported)
//   FAKE_NVML_HIDDEN=1       no figures per process (WSL)
//   FAKE_NVML_REFUSE=1       no processes at all: no permission
//   FAKE_NVML_MIG=1          GPU 0 is cut into two instances
//   FAKE_NVML_PIDS=12,345    processes on GPU 0, of 1 GiB, 2 GiB, …
//   FAKE_NVML_FILE=path      the same from a file that is read at every call, and may change: a
//   line
//                            "12 520" is a process of 520 MiB; half a GiB is used besides
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "observe/nvml_abi.h"

namespace abi = headroom::observe::nvml_abi;

namespace {

constexpr unsigned long long kGiB = 1ULL << 30;

int Setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// Handles are small numbers: a GPU's index + 1, and 100 + index for instances of GPU 0.
size_t NumberOf(abi::Device device) { return reinterpret_cast<size_t>(device); }
abi::Device DeviceOf(size_t number) { return reinterpret_cast<abi::Device>(number); }
bool IsInstance(abi::Device device) { return NumberOf(device) >= 100; }

struct Process {
  unsigned pid;
  unsigned long long bytes;
};

std::vector<Process> ProcessesOfFile(const char* path) {
  std::vector<Process> processes;
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return processes;
  Process process{};
  while (std::fscanf(file, "%u %llu", &process.pid, &process.bytes) == 2) {
    process.bytes <<= 20;
    processes.push_back(process);
  }
  std::fclose(file);
  return processes;
}

std::vector<Process> Processes(abi::Device device) {
  std::vector<Process> processes;
  if (NumberOf(device) != 1 && NumberOf(device) != 100) return processes;
  if (const char* path = std::getenv("FAKE_NVML_FILE")) return ProcessesOfFile(path);
  const char* text = std::getenv("FAKE_NVML_PIDS");
  while (text != nullptr && *text != '\0') {
    const auto pid = static_cast<unsigned>(std::strtoul(text, nullptr, 10));
    processes.push_back({pid, (processes.size() + 1) * kGiB});
    text = std::strchr(text, ',');
    if (text != nullptr) ++text;
  }
  return processes;
}

unsigned long long Used(abi::Device device) {
  unsigned long long used = kGiB / 2;
  for (const Process& process : Processes(device)) used += process.bytes;
  return used;
}

abi::Return Copy(const std::string& text, char* out, unsigned size) {
  if (text.size() + 1 > size) return abi::kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return abi::kSuccess;
}

}  // namespace

extern "C" {

abi::Return nvmlInit_v2();
abi::Return nvmlInit_v2() { return Setting("FAKE_NVML_INIT", abi::kSuccess); }

abi::Return nvmlShutdown();
abi::Return nvmlShutdown() { return abi::kSuccess; }

const char* nvmlErrorString(abi::Return code);
const char* nvmlErrorString(abi::Return code) {
  switch (code) {
    case abi::kNoPermission:
      return "Insufficient Permissions";
    case abi::kDriverNotLoaded:
      return "Driver Not Loaded";
    default:
      return "Unknown Error";
  }
}

abi::Return nvmlSystemGetDriverVersion(char* out, unsigned size);
abi::Return nvmlSystemGetDriverVersion(char* out, unsigned size) {
  return Copy("580.0.fake", out, size);
}

abi::Return nvmlDeviceGetCount_v2(unsigned* count);
abi::Return nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(Setting("FAKE_NVML_DEVICES", 1));
  return abi::kSuccess;
}

abi::Return nvmlDeviceGetHandleByIndex_v2(unsigned index, abi::Device* device);
abi::Return nvmlDeviceGetHandleByIndex_v2(unsigned index, abi::Device* device) {
  if (index >= static_cast<unsigned>(Setting("FAKE_NVML_DEVICES", 1))) return abi::kInvalidArgument;
  *device = DeviceOf(index + 1);
  return abi::kSuccess;
}

abi::Return nvmlDeviceGetName(abi::Device device, char* out, unsigned size);
abi::Return nvmlDeviceGetName(abi::Device device, char* out, unsigned size) {
  return Copy(IsInstance(device) ? "NVIDIA Fake MIG 1g.10gb" : "NVIDIA Fake", out, size);
}

abi::Return nvmlDeviceGetUUID(abi::Device device, char* out, unsigned size);
abi::Return nvmlDeviceGetUUID(abi::Device device, char* out, unsigned size) {
  return Copy((IsInstance(device) ? "MIG-" : "GPU-") + std::to_string(NumberOf(device)), out, size);
}

abi::Return nvmlDeviceGetMemoryInfo(abi::Device device, abi::Memory* memory);
abi::Return nvmlDeviceGetMemoryInfo(abi::Device device, abi::Memory* memory) {
  memory->total = 80 * kGiB;
  memory->used = Used(device) + kGiB;  // the old form counts the driver's own
  memory->free = memory->total - memory->used;
  return abi::kSuccess;
}

abi::Return nvmlDeviceGetMemoryInfo_v2(abi::Device device, abi::MemoryV2* memory);
abi::Return nvmlDeviceGetMemoryInfo_v2(abi::Device device, abi::MemoryV2* memory) {
  if (Setting("FAKE_NVML_OLD", 0) != 0) return abi::kNotSupported;
  if (memory->version != abi::kMemoryV2) return abi::kInvalidArgument;
  memory->total = IsInstance(device) ? 10 * kGiB : 80 * kGiB;
  memory->reserved = kGiB;
  memory->used = Used(device);
  memory->free = memory->total - memory->used - memory->reserved;
  return abi::kSuccess;
}

abi::Return nvmlDeviceGetComputeRunningProcesses_v3(abi::Device device, unsigned* count,
                                                    abi::ProcessInfo* infos);
abi::Return nvmlDeviceGetComputeRunningProcesses_v3(abi::Device device, unsigned* count,
                                                    abi::ProcessInfo* infos) {
  if (Setting("FAKE_NVML_REFUSE", 0) != 0) return abi::kNoPermission;
  const std::vector<Process> processes = Processes(device);
  const unsigned room = *count;
  *count = static_cast<unsigned>(processes.size());
  if (room < processes.size()) return abi::kInsufficientSize;
  for (size_t i = 0; i < processes.size(); ++i) {
    const bool hidden = Setting("FAKE_NVML_HIDDEN", 0) != 0;
    infos[i] = {processes[i].pid, hidden ? abi::kNotAvailable : processes[i].bytes,
                IsInstance(device) ? 7U : abi::kNoInstance, abi::kNoInstance};
  }
  return abi::kSuccess;
}

abi::Return nvmlDeviceGetMigMode(abi::Device device, unsigned* now, unsigned* pending);
abi::Return nvmlDeviceGetMigMode(abi::Device device, unsigned* now, unsigned* pending) {
  *now = *pending = NumberOf(device) == 1 && Setting("FAKE_NVML_MIG", 0) != 0 ? 1 : 0;
  return abi::kSuccess;
}

abi::Return nvmlDeviceGetMaxMigDeviceCount(abi::Device device, unsigned* count);
abi::Return nvmlDeviceGetMaxMigDeviceCount(abi::Device, unsigned* count) {
  *count = 7;
  return abi::kSuccess;
}

abi::Return nvmlDeviceGetMigDeviceHandleByIndex(abi::Device device, unsigned index,
                                                abi::Device* instance);
abi::Return nvmlDeviceGetMigDeviceHandleByIndex(abi::Device, unsigned index,
                                                abi::Device* instance) {
  if (index >= 2) return abi::kNotFound;
  *instance = DeviceOf(100 + index);
  return abi::kSuccess;
}

}  // extern "C"
