// SPDX-License-Identifier: Apache-2.0
//
// Random: the generator of everything about data (orders, splits, masks, synthetic tokens).
//
// It is keyed by what it decides about, Random({seed, epoch, example}), instead of carrying a state
// through the run: any batch can be made without those before it, and a resumed run makes the same.
// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014):
// the same numbers on every system, unlike the distributions of <random>.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

namespace headroom::engine {

class Random {
 public:
  constexpr Random(std::initializer_list<uint64_t> key) {
    for (const uint64_t word : key) state_ = Mix(state_ + kStep) ^ word;
  }

  constexpr uint64_t Next() {
    state_ += kStep;
    return Mix(state_);
  }
  // 0 … bound - 1, each as likely as the others to 2^-64. REQUIRES: bound > 0.
  constexpr uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<Wide>(Next()) * bound) >> 64);
  }
  // In [0, 1).
  constexpr double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

  // Fisher-Yates.
  template <typename T>
  constexpr void Shuffle(std::span<T> values) {
    for (size_t left = values.size(); left > 1; --left) {
      std::swap(values[left - 1], values[Below(left)]);
    }
  }

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr uint64_t kStep = 0x9E3779B97F4A7C15U;

  static constexpr uint64_t Mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }

  uint64_t state_ = 0;
};

}  // namespace headroom::engine
