// SPDX-License-Identifier: Apache-2.0
//
// ListCache: list literals that a pickle writes again and again, byte for byte.
//
// Three quarters of a snapshot are call stacks spelled as GETs of frames already known. A step of
// training spells the same stacks in the same order as the step before, so each list remembers
// which one followed it; when that guess's bytes stand in the file, the list is done without
// reading it.
//
//   … h 1d h 23 h 26 j 65 15 00 00 e …      bytes of list 12; after it came list 40 last time
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "observe/pickle_value.h"

namespace headroom::observe {

class ListCache {
 public:
  // The value of the list whose bytes stand at the front of `text`, if it is the one expected here;
  // `length` is how many bytes it takes. kUnset when it is another or unknown.
  PickleValue Guess(std::string_view text, size_t* length) {
    if (current_ == 0) return {};
    const uint32_t next = entries_[current_].next;
    const std::string_view known = BytesOf(next);
    if (next == 0 || !text.starts_with(known)) return {};
    current_ = next;
    *length = known.size();
    return entries_[next].value;
  }

  // `text` was read and is `value`: the next time it follows the same list it is expected.
  void Learn(std::string_view text, PickleValue value) {
    const auto [known, added] =
        numbers_.try_emplace(value.bits(), static_cast<uint32_t>(entries_.size()));
    if (added) {
      if (bytes_.size() + text.size() > kMostBytes || entries_.size() >= kMostEntries) {
        numbers_.erase(known);
        return;
      }
      entries_.push_back({value, bytes_.size(), text.size(), 0});
      bytes_ += text;
    }
    entries_[current_].next = known->second;
    current_ = known->second;
  }

  // What bytes mean has changed.
  void Clear() { *this = ListCache(); }

 private:
  static constexpr size_t kMostBytes = size_t{1} << 24;
  static constexpr size_t kMostEntries = size_t{1} << 16;

  struct Entry {
    PickleValue value;
    size_t offset = 0;
    size_t size = 0;
    uint32_t next = 0;  // entry that followed last; 0 is none
  };
  std::string_view BytesOf(uint32_t entry) const {
    return std::string_view(bytes_).substr(entries_[entry].offset, entries_[entry].size);
  }

  std::string bytes_;
  std::vector<Entry> entries_ = std::vector<Entry>(1);  // number 0: before the first list
  std::unordered_map<uint64_t, uint32_t> numbers_;      // by value
  uint32_t current_ = 0;
};

}  // namespace headroom::observe
