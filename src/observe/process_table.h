// SPDX-License-Identifier: Apache-2.0
//
// Processes by id, as /proc has them, and which of a GPU's processes are ours.
//
// In some containers NVML reports the host's ids, which mean nothing inside. Then the process that
// appeared on the card since a command was started is taken for the command's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "observe/nvml.h"

namespace headroom::observe {

class ProcessTable {
 public:
  // `root` is /proc, or what a test puts in its place.
  explicit ProcessTable(std::filesystem::path root = "/proc") : root_(std::move(root)) {}

  // Whether the id means a process in this container.
  bool IsVisible(uint32_t pid) const;
  // "python3"; "" when the process is gone or not visible.
  std::string Name(uint32_t pid) const;
  // Whether `pid` is `ancestor` or was started by it, directly or not, as far as both still run.
  bool Descends(uint32_t pid, uint32_t ancestor) const;

 private:
  std::filesystem::path root_;
};

// How a process of the card was found to be ours.
enum class OwnMatch {
  kNone,
  kById,
  kByAppearance,
  kByDifference,  // no process has a figure: what the card holds beyond what it held before
};

struct OwnMemory {
  OwnMatch match = OwnMatch::kNone;
  Bytes bytes;
  std::vector<uint32_t> pids;  // as the driver reports them
};

// The device memory of the processes `family` among `now`. Where none of them is listed, that of
// the processes which are not visible here and were not listed in `before`.
OwnMemory FindOwn(const GpuMemory& before, const GpuMemory& now, std::span<const uint32_t> family,
                  const ProcessTable& table);

}  // namespace headroom::observe
