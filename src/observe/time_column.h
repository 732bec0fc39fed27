// SPDX-License-Identifier: Apache-2.0
//
// TimeColumn: when the events of a trace came, in four bytes each.
//
// Microseconds since 1970 take 51 bits, but neighbours are close: a stretch of events keeps the
// time of its first, and each of them how far it is from it. A file whose clock jumps by more than
// half an hour within a stretch gets all of its times in full.
//
//   1,700,000,000,000,000 | …,017 | …,030     stretch 1,700,000,000,000,000: 0, 17, 30
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom::observe {

class TimeColumn {
 public:
  void Reserve(size_t events);
  void Add(uint64_t time);
  // REQUIRES: at < size().
  void Set(size_t at, uint64_t time);
  uint64_t operator[](size_t at) const {
    if (!full_.empty()) return full_[at];
    return starts_[at / kStretch] + static_cast<uint64_t>(int64_t{offsets_[at]});
  }
  // The first of `from` … `end` - 1, which ascend, that is not before `time`; `end` if there is
  // none.
  uint32_t FindFrom(uint64_t time, uint32_t from, uint32_t end) const;
  size_t size() const { return full_.empty() ? offsets_.size() : full_.size(); }

 private:
  static constexpr size_t kStretch = 1024;
  void Widen();

  std::vector<uint64_t> starts_;  // by stretch
  std::vector<int32_t> offsets_;
  std::vector<uint64_t> full_;  // in place of the others, when not empty
};

}  // namespace headroom::observe
