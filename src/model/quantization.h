// SPDX-License-Identifier: Apache-2.0
//
// Quantization: how bitsandbytes stores the weight of a linear module, and which modules it takes.
//
// Weights are stored by blocks: a 4-bit weight of [out, in] is one column of packed bytes, an
// absolute maximum for each 64 elements and the table of 16 values. Double quantization stores the
// maxima in 8 bits as well. LLM.int8 stores a byte an element and a scale a row.
//
//   4096 x 4096, nf4:  weight 8,388,608 B, absmax 1,048,576 B, quant_map 64 B
//                with double quantization: absmax 262,144 B, nested_absmax 4,096 B, …
//
// A size here is what a tensor asks for; the allocator rounds each to 512 B.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/shape.h"
#include "model/config.h"
#include "model/module_list.h"
#include "model/parameter_table.h"

namespace headroom {

// What stands in a weight's place.
enum class QuantType : uint8_t { kInt8, kFp4, kNf4 };
std::string_view Name(QuantType type);  // "int8", "fp4", "nf4"
std::optional<QuantType> ParseQuantType(std::string_view name);
constexpr bool Is4Bit(QuantType type) { return type != QuantType::kInt8; }

// transformers' BitsAndBytesConfig: kInt8 is load_in_8bit, the others are load_in_4bit with
// bnb_4bit_quant_type.
struct QuantizationConfig {
  QuantType type = QuantType::kFp4;       // the default of load_in_4bit
  bool use_double_quant = false;          // bnb_4bit_use_double_quant
  DType compute_dtype = DType::kFloat32;  // bnb_4bit_compute_dtype
  double int8_threshold = 6.0;            // llm_int8_threshold
  // llm_int8_skip_modules; unset: what transformers keeps of itself.
  std::optional<std::vector<std::string>> skip_modules = std::nullopt;
};

// One tensor of a quantized weight: its name behind the module's path, in the order in which
// bitsandbytes allocates those that stay.
struct QuantizedPart {
  std::string name;  // "weight", "weight.absmax", …
  Shape shape;
  DType dtype;
};

// The tensors that replace the weight [out, in] of one module.
std::vector<QuantizedPart> QuantizedParts(const QuantizationConfig& config, int64_t out,
                                          int64_t in);
// Their bytes, unrounded.
Bytes QuantizedBytes(const QuantizationConfig& config, int64_t out, int64_t in);

// Double quantization keeps one table of 256 values for the process, made with the first weight.
constexpr int64_t kDynamicMapSize = 256;

// The linear modules of `modules` that transformers converts, in their order: all but those of
// `skip_modules`, or when that is unset all but the output embedding, tied weights and the last
// module; and never what the class keeps in fp32 (T5's "wo").
std::vector<ModuleEntry> ConvertedModules(const QuantizationConfig& config,
                                          const ModelConfig& model, const ParameterTable& table,
                                          std::span<const ModuleEntry> modules);

}  // namespace headroom
