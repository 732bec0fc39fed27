// SPDX-License-Identifier: Apache-2.0
//
// MemoTable: what a pickle remembers, in four bytes an entry.
//
// A snapshot remembers every event, and a list for each, though it reads neither again: two and a
// half entries an event, the largest table by far while a file is read. Nearly all of them fit into
// 32 of a PickleValue's bits. A stack does as soon as it need not say which entry it stands in; the
// rare others lie in a table of their own.
//
//   entry 9: event 4,711                     -> its own bits
//   entry 10: stack 17 of memo entry 10 + 1  -> 17 | kOwn
//   entry 11: 2.5                            -> its place in the other table | kWide
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "observe/pickle_value.h"

namespace headroom::observe {

class MemoTable {
 public:
  // Sizes the table; entries that never come cost address space only.
  void Reserve(size_t entries) { codes_.reserve(entries); }

  size_t size() const { return codes_.size(); }
  // kUnset where nothing was written. REQUIRES: index < size().
  PickleValue operator[](size_t index) const {
    const uint32_t code = codes_[index];
    return IsEscape(code) ? Unpack(code, index) : PickleValue::FromBits(code);
  }
  // Entries in between stay unset.
  void Set(size_t index, PickleValue value) {
    const uint64_t bits = value.bits();
    if (index != codes_.size() || bits > UINT32_MAX || IsEscape(bits)) {
      SetAny(index, value);
    } else {
      codes_.push_back(static_cast<uint32_t>(bits));
    }
  }

 private:
  // Tags of numbers that no pickler remembers, and so of nothing that is held by its bits.
  static constexpr uint32_t kOwn = static_cast<uint32_t>(PickleValue::Tag::kWideInt);
  static constexpr uint32_t kWide = static_cast<uint32_t>(PickleValue::Tag::kFloat);
  static_assert((kOwn | 1) == kWide && kOwn % 2 == 0, "one comparison tells both");
  static constexpr bool IsEscape(uint64_t bits) { return (bits & 14) == kOwn; }

  void SetAny(size_t index, PickleValue value);
  PickleValue Unpack(uint32_t code, size_t index) const;

  std::vector<uint32_t> codes_;
  std::vector<PickleValue> wide_;
};

}  // namespace headroom::observe
