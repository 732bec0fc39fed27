// SPDX-License-Identifier: Apache-2.0
//
// What --device names, and what the machine holds of it while a run goes on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.h"
#include "base/bytes.h"
#include "base/result.h"
#include "engine/device.h"
#include "report/text.h"

namespace headroom::cli {

struct DeviceName {
  bool cuda = false;
  int index = 0;
};
inline constexpr Flag kDeviceFlag = {
    "--device", Takes::kValue, "NAME",
    "cpu, cuda or cuda:N (default: cuda where the program has it and there is a GPU)"};
// "cpu", "cuda", "cuda:1".
std::optional<DeviceName> ParseDevice(std::string_view name);
// What kDeviceFlag says; nothing when it was not given. Fails on other names.
Result<std::optional<DeviceName>> ReadDevice(const Arguments& arguments);
// A GPU where the program has the CUDA backend and the machine a card; else the CPU.
DeviceName DefaultDevice();

// Fails with one line where the program lacks the backend, or the machine the card.
Result<std::unique_ptr<engine::Device>> OpenCuda(int index, bool tf32);

// This process's bytes on a card, as NVML has them, step by step: the ladder of the documents.
class DeviceLadder {
 public:
  explicit DeviceLadder(int index) : index_(index) {}

  // Reads them now, under this name. Nothing where NVML does not tell.
  void Read(std::string name);
  // What was read last.
  std::optional<Bytes> last() const;
  // A line for each.
  std::string Text() const;

 private:
  int index_;
  std::vector<std::pair<std::string, Bytes>> rungs_;
};

}  // namespace headroom::cli
