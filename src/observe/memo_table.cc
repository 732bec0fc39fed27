// SPDX-License-Identifier: Apache-2.0
#include "observe/memo_table.h"

namespace headroom::observe {
namespace {

constexpr int kTagBits = 4;
constexpr int kKindBits = 4;    // of a kCustom value
constexpr int kEntryBits = 32;  // of its number, where it says which entry it stands in
constexpr uint64_t kStackEnd = uint64_t{1} << (32 - kTagBits - kKindBits);

}  // namespace

void MemoTable::SetAny(size_t index, PickleValue value) {
  if (index >= codes_.size()) codes_.resize(index + 1);
  const uint64_t bits = value.bits();
  if (bits <= UINT32_MAX && !IsEscape(bits)) {
    codes_[index] = static_cast<uint32_t>(bits);
    return;
  }
  const uint64_t number = value.custom_number();
  const uint64_t stack = number >> kEntryBits;
  const bool own = value.is(PickleValue::Tag::kCustom) && (number & UINT32_MAX) == index + 1;
  if (own && stack < kStackEnd) {
    codes_[index] = static_cast<uint32_t>((stack << kKindBits | value.kind()) << kTagBits) | kOwn;
    return;
  }
  // Written again and again, an entry keeps its place there.
  const uint32_t old = codes_[index];
  const bool has_place = IsEscape(old) && old % 2 == kWide % 2;
  const size_t place = has_place ? old >> kTagBits : wide_.size();
  if (!has_place) wide_.emplace_back();
  wide_[place] = value;
  codes_[index] = static_cast<uint32_t>(place << kTagBits) | kWide;
}

PickleValue MemoTable::Unpack(uint32_t code, size_t index) const {
  const uint32_t number = code >> kTagBits;
  if (code % 2 == kWide % 2) return wide_[number];
  const auto kind = static_cast<uint8_t>(number & ((1U << kKindBits) - 1));
  return PickleValue::Custom(kind, uint64_t{number >> kKindBits} << kEntryBits | (index + 1));
}

}  // namespace headroom::observe
