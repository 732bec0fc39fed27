// SPDX-License-Identifier: Apache-2.0
#include "observe/process_table.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/file.h"
#include "observe/string_table.h"

namespace headroom::observe {
namespace {

std::optional<uint32_t> ParsePid(std::string_view text) {
  uint32_t pid = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return pid;
}

// "7 (a) b) S 3 …" of /proc/7/stat: the parent stands second behind the last parenthesis.
std::optional<uint32_t> ParentOf(std::string_view stat) {
  const size_t close = stat.rfind(')');
  if (close == std::string_view::npos || close + 4 >= stat.size()) return std::nullopt;
  const std::string_view rest = stat.substr(close + 4);
  return ParsePid(rest.substr(0, rest.find(' ')));
}

std::vector<GpuProcess> AllProcesses(const GpuMemory& memory) {
  std::vector<GpuProcess> all = memory.processes;
  for (const GpuMemory& instance : memory.instances) {
    all.insert(all.end(), instance.processes.begin(), instance.processes.end());
  }
  return all;
}

}  // namespace

bool ProcessTable::IsVisible(uint32_t pid) const {
  std::error_code failure;
  return std::filesystem::exists(root_ / std::to_string(pid), failure);
}

std::string ProcessTable::Name(uint32_t pid) const {
  const Result<std::string> text = ReadFile(root_ / std::to_string(pid) / "comm", KiB(4));
  if (!text.ok()) return "";
  return MakePrintable(std::string_view(*text).substr(0, text->find('\n')));
}

bool ProcessTable::Descends(uint32_t pid, uint32_t ancestor) const {
  // Ids that are taken again while we look could make a ring.
  constexpr int kDeepest = 1000;
  for (int depth = 0; pid != 0 && depth < kDeepest; ++depth) {
    if (pid == ancestor) return true;
    const Result<std::string> stat = ReadFile(root_ / std::to_string(pid) / "stat", KiB(64));
    if (!stat.ok()) return false;
    pid = ParentOf(*stat).value_or(0);
  }
  return false;
}

OwnMemory FindOwn(const GpuMemory& before, const GpuMemory& now, std::span<const uint32_t> family,
                  const ProcessTable& table) {
  OwnMemory own;
  const std::vector<GpuProcess> processes = AllProcesses(now);
  const auto add = [&](const GpuProcess& process, OwnMatch match) {
    own.match = match;
    own.bytes += process.bytes.value_or(Bytes(0));
    own.pids.push_back(process.pid);
  };
  for (const GpuProcess& process : processes) {
    if (std::find(family.begin(), family.end(), process.pid) != family.end()) {
      add(process, OwnMatch::kById);
    }
  }
  if (own.match != OwnMatch::kNone) return own;
  const std::vector<GpuProcess> earlier = AllProcesses(before);
  for (const GpuProcess& process : processes) {
    const bool known = std::any_of(earlier.begin(), earlier.end(),
                                   [&](const GpuProcess& p) { return p.pid == process.pid; });
    if (!known && !table.IsVisible(process.pid)) add(process, OwnMatch::kByAppearance);
  }
  return own;
}

}  // namespace headroom::observe
