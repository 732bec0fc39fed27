// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <array>
#include <utility>

namespace headroom {
namespace {

constexpr std::array<std::pair<std::string_view, DType>, 16> kNames = {{
    // The first name of each type is the one that is printed.
    {"bool", DType::kBool},
    {"uint8", DType::kUInt8},
    {"int8", DType::kInt8},
    {"int32", DType::kInt32},
    {"int64", DType::kInt64},
    {"float16", DType::kFloat16},
    {"bfloat16", DType::kBFloat16},
    {"float32", DType::kFloat32},
    {"float64", DType::kFloat64},
    {"fp16", DType::kFloat16},
    {"half", DType::kFloat16},
    {"bf16", DType::kBFloat16},
    {"fp32", DType::kFloat32},
    {"float", DType::kFloat32},
    {"double", DType::kFloat64},
    {"long", DType::kInt64},
}};

}  // namespace

std::string_view Name(DType dtype) {
  for (const auto& [name, type] : kNames) {
    if (type == dtype) return name;
  }
  return "unknown";
}

std::optional<DType> ParseDType(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  for (const auto& [known, type] : kNames) {
    if (known == name) return type;
  }
  return std::nullopt;
}

}  // namespace headroom
