// SPDX-License-Identifier: Apache-2.0
//
// PickleValue: what stands on a pickle's stack and in its memo, in eight bytes.
//
// A snapshot of 1 GB has some 200 million of them pass by, so nothing is an object: small integers
// are in the value itself, everything else is a number in a table of the reader (strings, wide
// integers, floats, containers) or of the schema that recognised a container (kCustom: a frame, a
// stack, an event).
//
//   63 ........................................ 4 | 3 .. 0
//   payload                                       | tag
#pragma once

#include <cstdint>

namespace headroom::observe {

class PickleValue {
 public:
  enum class Tag : uint8_t {
    kUnset,  // nothing: a memo entry never written, or "not recognised"
    kNone,
    kBool,
    kInt,       // 60 bits, signed
    kWideInt,   // number in the table of wide integers
    kFloat,     // number in the table of floats
    kString,    // StringId
    kIntPair,   // a tuple of two integers below 2^30: how snapshots write pool ids
    kTuple,     // number of a container
    kList,      // number of a container
    kDict,      // number of a container
    kOpenList,  // empty so far; payload: its memo entry + 1, or 0
    kOpenDict,  // likewise
    kCustom,    // belongs to the schema: 4 bits of kind, 56 of number
    kGlobal,    // StringId of "module.name": something to import, which is never done
    kObject,    // number of a container: what would be called, its arguments, its state
  };

  constexpr PickleValue() = default;

  static constexpr PickleValue None() { return {Tag::kNone, 0}; }
  static constexpr PickleValue Bool(bool value) { return {Tag::kBool, value ? 1U : 0U}; }
  static constexpr PickleValue Int(int64_t value) {
    return {Tag::kInt, static_cast<uint64_t>(value)};
  }
  static constexpr bool FitsInt(int64_t value) { return value << 4 >> 4 == value; }
  static constexpr PickleValue Of(Tag tag, uint64_t number) { return {tag, number}; }
  static constexpr PickleValue IntPair(uint32_t first, uint32_t second) {
    return {Tag::kIntPair, uint64_t{first} << 30 | second};
  }
  static constexpr PickleValue Custom(uint8_t kind, uint64_t number) {
    return {Tag::kCustom, number << 4 | kind};
  }

  constexpr Tag tag() const { return static_cast<Tag>(bits_ & 15); }
  constexpr bool is(Tag tag) const { return this->tag() == tag; }
  constexpr bool is_custom(uint8_t kind) const {
    return (bits_ & 255) == (uint64_t{kind} << 4 | static_cast<uint64_t>(Tag::kCustom));
  }
  constexpr int64_t integer() const { return static_cast<int64_t>(bits_) >> 4; }
  constexpr uint64_t number() const { return bits_ >> 4; }
  constexpr uint32_t first() const { return static_cast<uint32_t>(number() >> 30); }
  constexpr uint32_t second() const { return static_cast<uint32_t>(number() & ((1U << 30) - 1)); }
  constexpr uint8_t kind() const { return static_cast<uint8_t>(bits_ >> 4 & 15); }
  constexpr uint64_t custom_number() const { return bits_ >> 8; }
  constexpr uint64_t bits() const { return bits_; }
  static constexpr PickleValue FromBits(uint64_t bits) {
    PickleValue value;
    value.bits_ = bits;
    return value;
  }
  constexpr bool operator==(const PickleValue&) const = default;

 private:
  constexpr PickleValue(Tag tag, uint64_t payload)
      : bits_(payload << 4 | static_cast<uint64_t>(tag)) {}
  uint64_t bits_ = 0;
};
static_assert(sizeof(PickleValue) == 8);

}  // namespace headroom::observe
