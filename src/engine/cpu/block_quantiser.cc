// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/block_quantiser.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/cpu/vector_kernels.h"

namespace headroom::engine {
namespace {

// Floats that agree in seven bits of mantissa differ by less than 0.8 % of the next power of two;
// the maps' neighbours by at least 0.7 % of their decade, so that at most one middle lies between.
constexpr int kShift = 16;

// Floats in the order of their values.
uint32_t Ordered(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

float FromOrdered(uint32_t order) {
  return std::bit_cast<float>((order & 0x80000000U) != 0 ? order & 0x7fffffffU : ~order);
}

// bitsandbytes, create_dynamic_map (functional.py at 95f9af3), with max_exponent_bits 7 and
// total_bits 8: seven decades, each with twice the values of the one below.
std::vector<float> DynamicMap(bool with_sign) {
  std::vector<float> map = {0.0F, 1.0F};
  for (int exponent = 0; exponent < 7; ++exponent) {
    const int values = 1 << (with_sign ? exponent : exponent + 1);
    const double step = 0.9 / values;
    const double decade = std::pow(10.0, exponent - 6);
    for (int i = 0; i < values; ++i) {
      const auto value = static_cast<float>(decade * (0.1 + (i + 0.5) * step));
      map.push_back(value);
      if (with_sign) map.push_back(-value);
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

}  // namespace

BlockQuantiser::BlockQuantiser(bool with_sign) : first_(size_t{1} << (32 - kShift)) {
  const std::vector<float> map = DynamicMap(with_sign);
  std::copy(map.begin(), map.end(), map_.begin());
  middle_.fill(std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < 255; ++i) middle_[i] = (map_[i] + map_[i + 1]) / 2;
  for (size_t range = 0; range < first_.size(); ++range) {
    const float lowest = FromOrdered(static_cast<uint32_t>(range) << kShift);
    const auto code = std::lower_bound(middle_.begin(), middle_.end() - 1, lowest);
    const bool number = !std::isnan(lowest);
    first_[range] = number ? static_cast<uint8_t>(code - middle_.begin()) : uint8_t{0};
  }
}

const BlockQuantiser& BlockQuantiser::Signed() {
  static const BlockQuantiser quantiser(true);
  return quantiser;
}

const BlockQuantiser& BlockQuantiser::Unsigned() {
  static const BlockQuantiser quantiser(false);
  return quantiser;
}

uint8_t BlockQuantiser::Nearest(float x) const {
  const size_t code = first_[Ordered(x) >> kShift];
  return static_cast<uint8_t>(code + (middle_[code] < x ? 1 : 0));
}

void BlockQuantiser::Load(const uint8_t* codes, float scale, int64_t n, float* values) const {
  for (int64_t i = 0; i < n; ++i) values[i] = map_[codes[i]] * scale;
}

float BlockQuantiser::Store(const float* values, int64_t n, uint8_t* codes) const {
  const float scale = cpu::Kernels().largest_magnitude(values, n);
  const float inverse = scale > 0 ? 1.0F / scale : 0.0F;
  for (int64_t i = 0; i < n; ++i) {
    uint8_t code = Nearest(values[i] * inverse);
    if (values[i] != 0 && std::signbit(map_[code]) != std::signbit(values[i])) {
      code = static_cast<uint8_t>(values[i] > 0 ? code + 1 : code - 1);
    }
    codes[i] = code;
  }
  return scale;
}

}  // namespace headroom::engine
