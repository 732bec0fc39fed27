// SPDX-License-Identifier: Apache-2.0
#include "observe/memo_table.h"

namespace headroom::observe {
namespace {

using Tag = PickleValue::Tag;

constexpr int kOwnBits = 32;

}  // namespace

void MemoTable::Set(size_t index, PickleValue value) {
  if (index >= codes_.size()) codes_.resize(index + 1);
  uint64_t number = 0;
  Class which = value.is(Tag::kUnset) ? Class::kUnset : Pack(value, index, &number);
  if (number >= kNumberEnd) which = Class::kWide;
  if (which == Class::kWide) {
    // Written again and again, an entry keeps its place there.
    const uint32_t old = codes_[index];
    const bool has_place = Class(old & ((1U << kClassBits) - 1)) == Class::kWide;
    number = has_place ? old >> kClassBits : wide_.size();
    if (!has_place) wide_.emplace_back();
    wide_[number] = value;
  }
  codes_[index] = static_cast<uint32_t>(number << kClassBits) | static_cast<uint32_t>(which);
}

MemoTable::Class MemoTable::Pack(PickleValue value, size_t index, uint64_t* number) {
  *number = value.number();
  switch (value.tag()) {
    case Tag::kString:
      return Class::kString;
    case Tag::kTuple:
      return Class::kTuple;
    case Tag::kList:
      return Class::kList;
    case Tag::kIntPair:
      if (value.first() >> kPairBits != 0 || value.second() >> kPairBits != 0) break;
      *number = uint64_t{value.first()} << kPairBits | value.second();
      return Class::kPair;
    case Tag::kOpenList:
    case Tag::kOpenDict:
      if (value.number() != index + 1) break;
      *number = 0;
      return value.is(Tag::kOpenList) ? Class::kOpenList : Class::kOpenDict;
    case Tag::kCustom: {
      const uint64_t payload = value.custom_number();
      if ((payload & UINT32_MAX) == index + 1 && value.kind() >> kOwnKindBits == 0) {
        *number = payload >> kOwnBits << kOwnKindBits | value.kind();
        return Class::kOwn;
      }
      if (value.kind() >= kCustomKinds) break;
      *number = payload;
      return Class(uint8_t(Class::kFirstCustom) + value.kind());
    }
    default:
      break;
  }
  return Class::kWide;
}

PickleValue MemoTable::Unpack(Class which, uint64_t number, size_t index) const {
  switch (which) {
    case Class::kWide:
      return wide_[number];
    case Class::kString:
      return PickleValue::Of(Tag::kString, number);
    case Class::kTuple:
      return PickleValue::Of(Tag::kTuple, number);
    case Class::kList:
      return PickleValue::Of(Tag::kList, number);
    case Class::kPair:
      return PickleValue::IntPair(static_cast<uint32_t>(number >> kPairBits),
                                  static_cast<uint32_t>(number & ((1U << kPairBits) - 1)));
    case Class::kOpenList:
      return PickleValue::Of(Tag::kOpenList, index + 1);
    case Class::kOpenDict:
      return PickleValue::Of(Tag::kOpenDict, index + 1);
    case Class::kOwn:
      return PickleValue::Custom(number & ((1U << kOwnKindBits) - 1),
                                 number >> kOwnKindBits << kOwnBits | (index + 1));
    default:
      return {};
  }
}

}  // namespace headroom::observe
