// SPDX-License-Identifier: Apache-2.0
//
// What the system says that this process holds: the measure that a plan of host memory is held
// against.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"

namespace headroom::cli {

// What the system can give without swapping.
std::optional<Bytes> AvailableMemory();

// What this process holds now. Nothing on systems that do not tell.
std::optional<Bytes> ResidentMemory();

// The growth of the process from here on, by the pages that it holds at most.
class ProcessGrowth {
 public:
  ProcessGrowth();
  std::optional<Bytes> Peak() const;

 private:
  std::optional<Bytes> before_;
};

// Which pages of a block of memory were touched, and so take memory.
class ResidentPages {
 public:
  // REQUIRES: `block` begins where a page does.
  explicit ResidentPages(std::span<const std::byte> block);
  // False where the system does not tell.
  bool known() const { return !pages_.empty(); }
  // Of the block's bytes [begin, begin + size).
  Bytes In(Bytes begin, Bytes size) const;

 private:
  int64_t page_ = 4096;
  std::vector<unsigned char> pages_;
};

}  // namespace headroom::cli
