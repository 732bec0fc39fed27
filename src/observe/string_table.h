// SPDX-License-Identifier: Apache-2.0
//
// StringTable: every different string of a file once, under a small number.
//
// Snapshots repeat a few thousand strings millions of times; an event keeps four bytes for each. A
// string is made printable when it is first seen: bytes that are no UTF-8 (Python writes lone
// surrogates) and control characters become U+FFFD, so no writer has to fear a name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::observe {

enum class StringId : uint32_t {};  // 0 is ""

class StringTable {
 public:
  StringTable();

  // The number of `text`, new or known. REQUIRES: !full().
  StringId Intern(std::string_view text);
  std::string_view Get(StringId id) const {
    const Entry& entry = entries_[static_cast<uint32_t>(id)];
    return {arena_.data() + entry.offset, entry.size};
  }
  size_t size() const { return entries_.size(); }
  // A real file has thousands of strings; one with millions of different ones is refused before it
  // takes the memory.
  bool full() const { return entries_.size() >= kMostStrings || arena_.size() >= kMostBytes; }

  static constexpr size_t kMostStrings = size_t{1} << 22;
  static constexpr size_t kMostBytes = size_t{1} << 28;

 private:
  struct Entry {
    uint32_t offset;
    uint32_t size;
    uint32_t hash;  // of the text as it stood in the file
    uint32_t raw_size;
  };
  StringId Add(std::string_view text, uint32_t hash);
  void Rehash();

  std::string arena_;  // printable text; the raw text follows it where the two differ
  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  // open addressing: entry + 1, or 0
};

// `text` with everything that is not printable UTF-8 (tabs and newlines apart) replaced by U+FFFD.
std::string MakePrintable(std::string_view text);

}  // namespace headroom::observe
