// SPDX-License-Identifier: Apache-2.0
#include "observe/nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/format.h"
#include "observe/nvml_abi.h"
#include "observe/string_table.h"

namespace headroom::observe {
namespace {

namespace abi = nvml_abi;

Bytes BytesOf(unsigned long long count) {
  constexpr auto kMost = static_cast<unsigned long long>(std::numeric_limits<int64_t>::max());
  return Bytes(static_cast<int64_t>(std::min(count, kMost)));
}

}  // namespace

struct Nvml::Library {
  void* handle = nullptr;
  bool initialised = false;
  std::string driver_version;

  // Absent functions stay null: each has an older form or can be done without.
  abi::Return (*init)() = nullptr;
  abi::Return (*shutdown)() = nullptr;
  const char* (*error_string)(abi::Return) = nullptr;
  abi::Return (*get_driver_version)(char*, unsigned) = nullptr;
  abi::Return (*get_count)(unsigned*) = nullptr;
  abi::Return (*get_handle)(unsigned, abi::Device*) = nullptr;
  abi::Return (*get_name)(abi::Device, char*, unsigned) = nullptr;
  abi::Return (*get_uuid)(abi::Device, char*, unsigned) = nullptr;
  abi::Return (*get_memory)(abi::Device, abi::Memory*) = nullptr;
  abi::Return (*get_memory_v2)(abi::Device, abi::MemoryV2*) = nullptr;
  abi::Return (*get_compute)(abi::Device, unsigned*, abi::ProcessInfo*) = nullptr;
  abi::Return (*get_compute_v1)(abi::Device, unsigned*, abi::ProcessInfoV1*) = nullptr;
  abi::Return (*get_graphics)(abi::Device, unsigned*, abi::ProcessInfo*) = nullptr;
  abi::Return (*get_mps)(abi::Device, unsigned*, abi::ProcessInfo*) = nullptr;
  abi::Return (*get_mig_mode)(abi::Device, unsigned*, unsigned*) = nullptr;
  abi::Return (*get_mig_count)(abi::Device, unsigned*) = nullptr;
  abi::Return (*get_mig_handle)(abi::Device, unsigned, abi::Device*) = nullptr;

  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (initialised && shutdown != nullptr) shutdown();
    if (handle != nullptr) dlclose(handle);
  }

  template <typename Function>
  void Load(Function* function, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      // POSIX promises that a function's address survives the way through void*.
      *function = reinterpret_cast<Function>(dlsym(handle, name));
      if (*function != nullptr) return;
    }
  }

  void LoadAll() {
    Load(&init, {"nvmlInit_v2", "nvmlInit"});
    Load(&shutdown, {"nvmlShutdown"});
    Load(&error_string, {"nvmlErrorString"});
    Load(&get_driver_version, {"nvmlSystemGetDriverVersion"});
    Load(&get_count, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
    Load(&get_handle, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"});
    Load(&get_name, {"nvmlDeviceGetName"});
    Load(&get_uuid, {"nvmlDeviceGetUUID"});
    Load(&get_memory, {"nvmlDeviceGetMemoryInfo"});
    Load(&get_memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
    Load(&get_compute,
         {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"});
    Load(&get_compute_v1, {"nvmlDeviceGetComputeRunningProcesses"});
    Load(&get_graphics,
         {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"});
    Load(&get_mps, {"nvmlDeviceGetMPSComputeRunningProcesses_v3",
                    "nvmlDeviceGetMPSComputeRunningProcesses_v2"});
    Load(&get_mig_mode, {"nvmlDeviceGetMigMode"});
    Load(&get_mig_count, {"nvmlDeviceGetMaxMigDeviceCount"});
    Load(&get_mig_handle, {"nvmlDeviceGetMigDeviceHandleByIndex"});
  }

  std::string Text(abi::Return code) const {
    const char* text = error_string != nullptr ? error_string(code) : nullptr;
    return text != nullptr ? MakePrintable(text) : Format("NVML error {}", code);
  }

  std::string Named(abi::Return (*get)(abi::Device, char*, unsigned), abi::Device device) const {
    std::array<char, abi::kNameSize> text{};
    if (get == nullptr || get(device, text.data(), abi::kNameSize - 1) != abi::kSuccess) return "";
    return MakePrintable(text.data());
  }

  Status ReadMemory(abi::Device device, GpuMemory* out) const {
    if (get_memory_v2 != nullptr) {
      abi::MemoryV2 memory{};
      memory.version = abi::kMemoryV2;
      const abi::Return code = get_memory_v2(device, &memory);
      if (code == abi::kSuccess) {
        out->total = BytesOf(memory.total);
        out->reserved = BytesOf(memory.reserved);
        out->free = BytesOf(memory.free);
        out->used = BytesOf(memory.used);
        return {};
      }
      if (code != abi::kNotSupported && code != abi::kFunctionNotFound) {
        return Error::BadInput(Text(code));
      }
    }
    if (get_memory == nullptr) return Error::BadInput("this driver does not report memory");
    abi::Memory memory{};
    const abi::Return code = get_memory(device, &memory);
    if (code != abi::kSuccess) return Error::BadInput(Text(code));
    out->total = BytesOf(memory.total);
    out->free = BytesOf(memory.free);
    out->used = BytesOf(memory.used);
    return {};
  }

  // Asks for the number first and then for the list, which may have grown in between.
  template <typename Info, typename Function>
  abi::Return List(Function get, abi::Device device, std::vector<Info>* infos) const {
    constexpr int kTries = 5;
    unsigned count = 0;
    abi::Return code = get(device, &count, nullptr);
    for (int i = 0; i < kTries && code == abi::kInsufficientSize; ++i) {
      infos->resize(std::min(count, 100'000U) + 8);
      count = static_cast<unsigned>(infos->size());
      code = get(device, &count, infos->data());
    }
    infos->resize(code == abi::kSuccess ? std::min<size_t>(count, infos->size()) : 0);
    return code;
  }

  void AddProcess(GpuProcess::Type type, unsigned pid, unsigned long long used, unsigned instance,
                  std::vector<GpuProcess>* out) const {
    // A process that computes and draws stands in both lists with the same figure.
    const bool known = std::any_of(out->begin(), out->end(), [&](const GpuProcess& p) {
      return p.pid == pid && p.gpu_instance.value_or(abi::kNoInstance) == instance;
    });
    if (known) return;
    GpuProcess process;
    process.pid = pid;
    process.type = type;
    if (used != abi::kNotAvailable) process.bytes = BytesOf(used);
    if (instance != abi::kNoInstance) process.gpu_instance = instance;
    out->push_back(process);
  }

  void ReadProcesses(abi::Device device, GpuMemory* out) const {
    abi::Return code = abi::kFunctionNotFound;
    std::vector<abi::ProcessInfo> infos;
    if (get_compute != nullptr) {
      code = List(get_compute, device, &infos);
      for (const abi::ProcessInfo& info : infos) {
        AddProcess(GpuProcess::Type::kCompute, info.pid, info.used_gpu_memory, info.gpu_instance,
                   &out->processes);
      }
    } else if (get_compute_v1 != nullptr) {
      std::vector<abi::ProcessInfoV1> old;
      code = List(get_compute_v1, device, &old);
      for (const abi::ProcessInfoV1& info : old) {
        AddProcess(GpuProcess::Type::kCompute, info.pid, info.used_gpu_memory, abi::kNoInstance,
                   &out->processes);
      }
    }
    if (code != abi::kSuccess) out->processes_missing = Text(code);
    // Clients of CUDA's Multi-Process Service stand in a list of their own.
    infos.clear();
    if (get_mps != nullptr && List(get_mps, device, &infos) == abi::kSuccess) {
      for (const abi::ProcessInfo& info : infos) {
        AddProcess(GpuProcess::Type::kCompute, info.pid, info.used_gpu_memory, info.gpu_instance,
                   &out->processes);
      }
    }
    infos.clear();
    if (get_graphics != nullptr && List(get_graphics, device, &infos) == abi::kSuccess) {
      for (const abi::ProcessInfo& info : infos) {
        AddProcess(GpuProcess::Type::kGraphics, info.pid, info.used_gpu_memory, info.gpu_instance,
                   &out->processes);
      }
    }
    std::sort(out->processes.begin(), out->processes.end(),
              [](const GpuProcess& a, const GpuProcess& b) { return a.pid < b.pid; });
  }

  bool MigIsOn(abi::Device device) const {
    unsigned now = 0;
    unsigned pending = 0;
    return get_mig_mode != nullptr && get_mig_count != nullptr && get_mig_handle != nullptr &&
           get_mig_mode(device, &now, &pending) == abi::kSuccess && now == 1;
  }

  void ReadInstances(abi::Device device, GpuMemory* out) const {
    unsigned count = 0;
    if (get_mig_count(device, &count) != abi::kSuccess) return;
    for (unsigned i = 0; i < std::min(count, 64U); ++i) {
      abi::Device instance = nullptr;
      if (get_mig_handle(device, i, &instance) != abi::kSuccess) continue;  // a free slot
      GpuMemory memory;
      memory.index = static_cast<int>(i);
      memory.name = Named(get_name, instance);
      memory.uuid = Named(get_uuid, instance);
      if (!ReadMemory(instance, &memory).ok()) continue;
      ReadProcesses(instance, &memory);
      out->instances.push_back(std::move(memory));
    }
  }
};

Nvml::Nvml(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Nvml::Nvml(Nvml&&) noexcept = default;
Nvml& Nvml::operator=(Nvml&&) noexcept = default;
Nvml::~Nvml() = default;

Result<Nvml> Nvml::Open(const std::string& library) {
  auto opened = std::make_unique<Library>();
  opened->handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened->handle == nullptr) {
    return Error::BadInput(
        Format("no NVIDIA driver on this machine ({} cannot be opened): device memory can be "
               "watched where the GPU is",
               library));
  }
  opened->LoadAll();
  if (opened->init == nullptr || opened->get_count == nullptr || opened->get_handle == nullptr) {
    return Error::BadInput(Format("{} is no NVML: it lacks nvmlInit", library));
  }
  const abi::Return code = opened->init();
  if (code != abi::kSuccess) {
    return Error::BadInput(Format("the NVIDIA driver does not answer: {}", opened->Text(code)));
  }
  opened->initialised = true;
  std::array<char, abi::kNameSize> version{};
  if (opened->get_driver_version != nullptr &&
      opened->get_driver_version(version.data(), abi::kNameSize - 1) == abi::kSuccess) {
    opened->driver_version = MakePrintable(version.data());
  }
  return Nvml(std::move(opened));
}

const std::string& Nvml::driver_version() const { return library_->driver_version; }

Result<int> Nvml::DeviceCount() const {
  unsigned count = 0;
  const abi::Return code = library_->get_count(&count);
  if (code != abi::kSuccess) return Error::BadInput(library_->Text(code));
  return static_cast<int>(std::min(count, 4096U));
}

Result<GpuMemory> Nvml::Read(int index) const {
  abi::Device device = nullptr;
  const abi::Return code = library_->get_handle(static_cast<unsigned>(index), &device);
  if (code == abi::kInvalidArgument || code == abi::kNotFound) {
    HEADROOM_ASSIGN_OR_RETURN(const int count, DeviceCount());
    return Error::BadInput(
        Format("there is no GPU {}: this machine has {} (0 to {})", index, count, count - 1));
  }
  if (code != abi::kSuccess) {
    return Error::BadInput(Format("GPU {}: {}", index, library_->Text(code)));
  }
  GpuMemory memory;
  memory.index = index;
  memory.name = library_->Named(library_->get_name, device);
  memory.uuid = library_->Named(library_->get_uuid, device);
  if (const Status status = library_->ReadMemory(device, &memory); !status.ok()) {
    return status.error().In(Format("GPU {}", index));
  }
  if (library_->MigIsOn(device)) library_->ReadInstances(device, &memory);
  if (memory.instances.empty()) library_->ReadProcesses(device, &memory);
  return memory;
}

Result<std::vector<GpuMemory>> Nvml::ReadAll() const {
  HEADROOM_ASSIGN_OR_RETURN(const int count, DeviceCount());
  std::vector<GpuMemory> all;
  for (int i = 0; i < count; ++i) {
    HEADROOM_ASSIGN_OR_RETURN(GpuMemory memory, Read(i));
    all.push_back(std::move(memory));
  }
  return all;
}

namespace {

// Adds what `pid` holds of the list. False where a figure of its is missing.
bool AddProcess(const std::vector<GpuProcess>& processes, uint32_t pid, Bytes& sum) {
  for (const GpuProcess& process : processes) {
    if (process.pid != pid) continue;
    if (!process.bytes) return false;
    sum += *process.bytes;
  }
  return true;
}

}  // namespace

std::optional<Bytes> ThisProcessMemory(int index, const std::string& library) {
  const Result<Nvml> nvml = Nvml::Open(library);
  if (!nvml.ok()) return std::nullopt;
  const Result<GpuMemory> memory = nvml->Read(index);
  if (!memory.ok()) return std::nullopt;
  const auto pid = static_cast<uint32_t>(getpid());
  Bytes sum;
  bool known = memory->processes_missing.empty() && AddProcess(memory->processes, pid, sum);
  for (const GpuMemory& instance : memory->instances) {
    known = known && instance.processes_missing.empty() && AddProcess(instance.processes, pid, sum);
  }
  return known ? std::optional(sum) : std::nullopt;
}

}  // namespace headroom::observe
