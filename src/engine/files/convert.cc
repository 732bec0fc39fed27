// SPDX-License-Identifier: Apache-2.0
#include "engine/files/convert.h"

#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "engine/half.h"

namespace headroom::engine {
namespace {

struct Float32 {
  using Bits = float;
  static float Decode(Bits bits) { return bits; }
  static Bits Encode(float value) { return value; }
};
struct Float64 {
  using Bits = double;
  static float Decode(Bits bits) { return static_cast<float>(bits); }
  static Bits Encode(float value) { return value; }
};
struct Float16 {
  using Bits = uint16_t;
  static float Decode(Bits bits) { return FromFloat16(bits); }
  static Bits Encode(float value) { return Float16Bits(value); }
};
struct BFloat16 {
  using Bits = uint16_t;
  static float Decode(Bits bits) { return FromBFloat16(bits); }
  static Bits Encode(float value) { return BFloat16Bits(value); }
};

template <typename From, typename To>
void ConvertAll(std::span<const std::byte> source, std::span<std::byte> destination) {
  using In = typename From::Bits;
  using Out = typename To::Bits;
  const size_t count = source.size() / sizeof(In);
  HEADROOM_CHECK(destination.size() == count * sizeof(Out), "a destination of another size");
  for (size_t i = 0; i < count; ++i) {
    In in;
    std::memcpy(&in, source.data() + i * sizeof(In), sizeof(In));
    const Out out = To::Encode(From::Decode(in));
    std::memcpy(destination.data() + i * sizeof(Out), &out, sizeof(Out));
  }
}

template <typename From>
void ConvertFrom(std::span<const std::byte> source, std::span<std::byte> destination, DType to) {
  if (to == DType::kFloat32) return ConvertAll<From, Float32>(source, destination);
  if (to == DType::kFloat16) return ConvertAll<From, Float16>(source, destination);
  if (to == DType::kBFloat16) return ConvertAll<From, BFloat16>(source, destination);
  ConvertAll<From, Float64>(source, destination);
}

}  // namespace

bool Converts(DType from, DType to) {
  return from == to || (IsFloatingPoint(from) && IsFloatingPoint(to));
}

void Convert(std::span<const std::byte> source, DType from, std::span<std::byte> destination,
             DType to) {
  HEADROOM_CHECK(Converts(from, to), "types that do not convert");
  if (from == to) {
    HEADROOM_CHECK(source.size() == destination.size(), "a destination of another size");
    if (!source.empty()) std::memcpy(destination.data(), source.data(), source.size());
    return;
  }
  if (from == DType::kFloat32) return ConvertFrom<Float32>(source, destination, to);
  if (from == DType::kFloat16) return ConvertFrom<Float16>(source, destination, to);
  if (from == DType::kBFloat16) return ConvertFrom<BFloat16>(source, destination, to);
  ConvertFrom<Float64>(source, destination, to);
}

}  // namespace headroom::engine
