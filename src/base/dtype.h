// SPDX-License-Identifier: Apache-2.0
//
// DType: the element types of tensors, under PyTorch's names.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace headroom {

enum class DType : uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
};

// Bytes of one element.
constexpr int64_t ElementSize(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
      return 1;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kInt32:
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
    case DType::kFloat64:
      return 8;
  }
  return 0;
}

constexpr bool IsFloatingPoint(DType dtype) { return dtype >= DType::kFloat16; }
constexpr bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// PyTorch's name: "float32", "bfloat16", ….
std::string_view Name(DType dtype);

// Reads PyTorch's name with or without "torch." and the short forms fp32, fp16, bf16, half, float.
std::optional<DType> ParseDType(std::string_view name);

}  // namespace headroom
