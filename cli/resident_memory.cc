// SPDX-License-Identifier: Apache-2.0
#include "resident_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

namespace headroom::cli {
namespace {

// The value of a "Key:   123 kB" line.
std::optional<Bytes> KibOf(const char* path, std::string_view wanted) {
  std::ifstream file(path);
  std::string key;
  while (file >> key) {
    int64_t kib = 0;
    if (key == wanted && file >> kib) return KiB(kib);
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

}  // namespace

std::optional<Bytes> AvailableMemory() { return KibOf("/proc/meminfo", "MemAvailable:"); }

std::optional<Bytes> ResidentMemory() { return KibOf("/proc/self/status", "VmRSS:"); }

ProcessGrowth::ProcessGrowth() {
  // 5 lets the high-water mark begin anew (man 5 proc). Where that is forbidden, it holds what
  // came before too, and says so only when that was more.
  std::ofstream("/proc/self/clear_refs") << "5";
  before_ = ResidentMemory();
}

std::optional<Bytes> ProcessGrowth::Peak() const {
  const std::optional<Bytes> most = KibOf("/proc/self/status", "VmHWM:");
  if (!before_ || !most) return std::nullopt;
  return std::max(*most - *before_, Bytes(0));
}

ResidentPages::ResidentPages(std::span<const std::byte> block) : page_(sysconf(_SC_PAGESIZE)) {
  pages_.resize((block.size() + static_cast<size_t>(page_) - 1) / static_cast<size_t>(page_));
  // mincore only reads, and takes no pointer to const.
  auto* begin = const_cast<std::byte*>(block.data());
  if (mincore(begin, block.size(), pages_.data()) != 0) pages_.clear();
}

Bytes ResidentPages::In(Bytes begin, Bytes size) const {
  const int64_t end = begin.count() + size.count();
  int64_t sum = 0;
  for (int64_t at = begin.count(); at < end;) {
    const int64_t next = std::min((at / page_ + 1) * page_, end);
    const auto page = static_cast<size_t>(at / page_);
    if (page < pages_.size() && (pages_[page] & 1) != 0) sum += next - at;
    at = next;
  }
  return Bytes(sum);
}

}  // namespace headroom::cli
