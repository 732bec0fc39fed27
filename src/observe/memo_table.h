// SPDX-License-Identifier: Apache-2.0
//
// MemoTable: what a pickle remembers, in four bytes an entry.
//
// A snapshot remembers every event, and a list for each, though it reads neither again: two and a
// half entries an event, the largest table by far while a file is read. What stands in it fits into
// 28 bits as soon as it need not say what it is (four bits do) nor where it stands (an open list
// and a stack know their entry). The rare others lie in a table of their own.
//
//   entry 9: event 4,711   -> 4711 | kEvent's four bits
//   entry 10: stack 17 of memo entry 10 + 1  -> 17 | kOwn's
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
    const uint64_t number = code >> kClassBits;
    const auto which = Class(code & ((1U << kClassBits) - 1));
    // Frames are what is read again.
    if (which >= Class::kFirstCustom) [[likely]] {
      return PickleValue::Custom(KindOf(which), number);
    }
    return Unpack(which, number, index);
  }
  // Entries in between stay unset.
  void Set(size_t index, PickleValue value);

 private:
  static constexpr uint32_t kClassBits = 4;
  static constexpr uint64_t kNumberEnd = uint64_t{1} << (32 - kClassBits);
  static constexpr uint32_t kPairBits = 14;  // of each member of a pair
  static constexpr uint32_t kOwnKindBits = 2;
  enum class Class : uint8_t {
    kUnset,
    kWide,  // number in wide_
    kString,
    kTuple,
    kList,
    kPair,
    kOpenList,     // of this entry
    kOpenDict,     // likewise
    kOwn,          // a kCustom value whose low 32 bits are this entry's number + 1
    kFirstCustom,  // kinds 0 to 6
  };
  static constexpr uint64_t kCustomKinds = 16 - uint64_t(Class::kFirstCustom);
  static uint8_t KindOf(Class which) { return uint8_t(which) - uint8_t(Class::kFirstCustom); }

  PickleValue Unpack(Class which, uint64_t number, size_t index) const;
  // The class and number of a value of this entry; kWide for what fits nowhere else.
  static Class Pack(PickleValue value, size_t index, uint64_t* number);

  std::vector<uint32_t> codes_;
  std::vector<PickleValue> wide_;
};

}  // namespace headroom::observe
