// SPDX-License-Identifier: Apache-2.0
//
// Nvml: what the driver says about device memory, now. The library is opened at run time: a machine
// without a driver gets an error of one line, and no build needs CUDA.
//
//   total 143,771 MiB = used 25,000 + reserved by the driver 615 + free 118,156      (nvidia-smi's)
//   used             >= sum over processes: each holds its context, libraries and allocator
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace headroom::observe {

struct GpuProcess {
  enum class Type { kCompute, kGraphics };
  uint32_t pid = 0;  // the host's in some containers: see IsVisible
  Type type = Type::kCompute;
  std::optional<Bytes> bytes;            // unset: the driver does not tell (WSL, WDDM, vGPU)
  std::optional<uint32_t> gpu_instance;  // under MIG
};

// One GPU, or one MIG instance of it.
struct GpuMemory {
  int index = 0;
  std::string name;  // "NVIDIA H200"
  std::string uuid;  // "GPU-…", "MIG-…"
  Bytes total;
  Bytes used;  // as nvidia-smi --query-gpu=memory.used
  Bytes free;
  std::optional<Bytes> reserved;  // by the driver itself, not in `used`; unset on old drivers
  std::vector<GpuProcess> processes;
  std::string processes_missing;     // why there are none, when the driver refused them; else empty
  std::vector<GpuMemory> instances;  // under MIG; then `processes` stand there
};

class Nvml {
 public:
  // Loads `library` and initialises it. Fails without a driver, saying so.
  static Result<Nvml> Open(const std::string& library = "libnvidia-ml.so.1");
  Nvml(Nvml&&) noexcept;
  Nvml& operator=(Nvml&&) noexcept;
  ~Nvml();

  const std::string& driver_version() const;  // "580.159.04"; "" when unknown
  Result<int> DeviceCount() const;
  // REQUIRES: index >= 0. Fails beyond the last device and when the device is lost.
  Result<GpuMemory> Read(int index) const;
  Result<std::vector<GpuMemory>> ReadAll() const;

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

// What this process holds on GPU `index`, its MIG instances together: 0 where the driver does not
// list it, as before its first context. Unset where the driver does not tell.
std::optional<Bytes> ThisProcessMemory(int index, const std::string& library = "libnvidia-ml.so.1");

}  // namespace headroom::observe
