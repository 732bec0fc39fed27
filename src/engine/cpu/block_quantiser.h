// SPDX-License-Identifier: Apache-2.0
//
// The 8-bit optimizer states of bitsandbytes: blocks of 256 elements, each an absolute maximum in
// float32 and codes into a map of 256 values in [-1, 1] that is dense near 0.
//
//   element = map[code] * scale of its block       2 states take 2 + 2 * 4 / 256 bytes an element
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace headroom::engine {

inline constexpr int64_t kQuantisedBlock = 256;

class BlockQuantiser {
 public:
  // The map for a first moment, and for a second one, which is never negative.
  static const BlockQuantiser& Signed();
  static const BlockQuantiser& Unsigned();

  float Value(uint8_t code) const { return map_[code]; }
  // The code whose value is nearest to x, the lower of two.
  uint8_t Nearest(float x) const;

  // n <= 256 elements of one block.
  void Load(const uint8_t* codes, float scale, int64_t n, float* values) const;
  // Returns the block's scale. A value never gets the code of one of the other sign.
  float Store(const float* values, int64_t n, uint8_t* codes) const;

 private:
  explicit BlockQuantiser(bool with_sign);

  std::array<float, 256> map_{};
  std::array<float, 256> middle_{};  // between a value and the next; after the last, infinity
  std::vector<uint8_t> first_;       // the lowest code of the floats with these upper 16 bits
};

}  // namespace headroom::engine
