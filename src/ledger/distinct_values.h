// SPDX-License-Identifier: Apache-2.0
//
// DistinctValues: each different value once, by number.
//
//   NumberOf(a) 0 | NumberOf(b) 1 | NumberOf(a) 0
//
// Traits say what is different: static size_t Hash(const T&) and static bool Same(const T&, const
// T&).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headroom {

template <typename T, typename Traits>
class DistinctValues {
 public:
  // REQUIRES: `slots` is a power of two; room for half as many values before the first growth.
  explicit DistinctValues(size_t slots) : slots_(slots, 0) {}

  // The number of the value that is the same, or a new one.
  uint32_t NumberOf(const T& value) {
    if (values_.size() * 2 >= slots_.size()) Grow();
    const size_t mask = slots_.size() - 1;
    size_t slot = Traits::Hash(value) & mask;
    for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
      if (Traits::Same(values_[slots_[slot] - 1], value)) return slots_[slot] - 1;
    }
    values_.push_back(value);
    slots_[slot] = static_cast<uint32_t>(values_.size());
    return slots_[slot] - 1;
  }

  // Valid until the next change.
  const T& operator[](size_t number) const { return values_[number]; }
  std::span<const T> values() const { return values_; }

 private:
  void Grow() {
    slots_.assign(slots_.size() * 2, 0);
    const size_t mask = slots_.size() - 1;
    for (size_t i = 0; i < values_.size(); ++i) {
      size_t slot = Traits::Hash(values_[i]) & mask;
      while (slots_[slot] != 0) slot = (slot + 1) & mask;
      slots_[slot] = static_cast<uint32_t>(i) + 1;
    }
  }

  std::vector<T> values_;
  std::vector<uint32_t> slots_;  // open addressing: position in values_ + 1, or 0
};

}  // namespace headroom
