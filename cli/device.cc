// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <charconv>

#include "base/format.h"
#include "observe/nvml.h"

#if defined(HEADROOM_HAS_CUDA)
#include "engine/cuda/cuda_backend.h"
#include "model/locate.h"
#endif

namespace headroom::cli {

std::optional<DeviceName> ParseDevice(std::string_view name) {
  if (name == "cpu") return DeviceName{};
  if (name == "cuda") return DeviceName{.cuda = true};
  constexpr std::string_view kPrefix = "cuda:";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  DeviceName device{.cuda = true};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), device.index);
  if (error != std::errc() || end != digits.data() + digits.size() || device.index < 0) {
    return std::nullopt;
  }
  return device;
}

Result<std::optional<DeviceName>> ReadDevice(const Arguments& arguments) {
  const std::optional<std::string> name = arguments.Value("--device");
  if (!name) return std::optional<DeviceName>();
  std::optional<DeviceName> device = ParseDevice(*name);
  if (device) return device;
  return Error::BadInput(Format("--device {}: unknown: choose cpu, cuda or cuda:N", *name));
}

#if defined(HEADROOM_HAS_CUDA)
DeviceName DefaultDevice() { return {.cuda = engine::CudaDeviceCount() > 0}; }

Result<std::unique_ptr<engine::Device>> OpenCuda(int index, bool tf32) {
  const std::filesystem::path cache = UserCache();
  const engine::CudaOptions options{.tf32 = tf32,
                                    .algorithms = cache.empty() ? cache : cache / "headroom"};
  HEADROOM_ASSIGN_OR_RETURN(std::unique_ptr<engine::CudaDevice> device,
                            engine::CudaDevice::Open(index, options));
  return std::unique_ptr<engine::Device>(std::move(device));
}
#else
DeviceName DefaultDevice() { return {}; }

Result<std::unique_ptr<engine::Device>> OpenCuda(int, bool) {
  return Error::BadInput(
      "--device cuda: this program was built without CUDA: build it with -DHEADROOM_CUDA=ON");
}
#endif

void DeviceLadder::Read(std::string name) {
  const std::optional<Bytes> bytes = observe::ThisProcessMemory(index_);
  if (bytes) rungs_.emplace_back(std::move(name), *bytes);
}

std::optional<Bytes> DeviceLadder::last() const {
  if (rungs_.empty()) return std::nullopt;
  return rungs_.back().second;
}

std::string DeviceLadder::Text() const {
  std::string text;
  Bytes before;
  for (const auto& [name, bytes] : rungs_) {
    text += Format(
        "  {:<24}{:>12}{:>14}\n", name, FormatBytes(bytes),
        bytes < before ? "-" + FormatBytes(before - bytes) : "+" + FormatBytes(bytes - before));
    before = bytes;
  }
  return text;
}

}  // namespace headroom::cli
