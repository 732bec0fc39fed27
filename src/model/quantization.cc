// SPDX-License-Identifier: Apache-2.0
//
// bitsandbytes 0.50.2: functional.py (quantize_4bit, quantize_blockwise), backends/cuda/ops.py;
// transformers 5.17.0: quantizers/base.py (get_keys_to_not_convert), quantizers_utils.py
// (should_convert_module), quantizer_bnb_4bit.py.
#include "model/quantization.h"

#include <algorithm>

namespace headroom {
namespace {

constexpr int64_t kBlock = 64;         // of 4-bit weights
constexpr int64_t kNestedBlock = 256;  // of their maxima
constexpr int64_t kValues4Bit = 16;

int64_t Blocks(int64_t elements, int64_t block) { return (elements + block - 1) / block; }

// should_convert_module matches each key as a regular expression at the start of the path, and as
// it is at the end. The keys are module paths, in which only the dot is special: any character.
bool MatchesStart(std::string_view path, std::string_view key) {
  if (path.size() < key.size()) return false;
  for (size_t i = 0; i < key.size(); ++i) {
    if (key[i] != '.' && key[i] != path[i]) return false;
  }
  return true;
}

bool IsSkipped(std::string_view path, const std::vector<std::string>& keys) {
  return std::ranges::any_of(
      keys, [&](const std::string& key) { return MatchesStart(path, key) || path.ends_with(key); });
}

std::string WithoutWeight(std::string_view name) {
  constexpr std::string_view kSuffix = ".weight";
  if (name.ends_with(kSuffix)) name.remove_suffix(kSuffix.size());
  return std::string(name);
}

// get_keys_to_not_convert. A tied weight also keeps the embedding it is tied to, which is no linear
// module anyway.
std::vector<std::string> DefaultSkips(const ParameterTable& table,
                                      std::span<const ModuleEntry> modules) {
  std::vector<std::string> keys;
  for (const ModuleEntry& module : modules) {
    if (module.kind != ModuleKind::kEmbedding && (module.tied || IsOutputEmbedding(module.path))) {
      keys.push_back(module.path);
    }
  }
  const auto last = std::find_if(table.entries().rbegin(), table.entries().rend(),
                                 [](const ParameterSpec& entry) { return !entry.is_buffer; });
  if (last != table.entries().rend()) keys.push_back(WithoutWeight(last->name));
  return keys;
}

}  // namespace

std::string_view Name(QuantType type) {
  switch (type) {
    case QuantType::kInt8:
      return "int8";
    case QuantType::kFp4:
      return "fp4";
    case QuantType::kNf4:
      return "nf4";
  }
  return "unknown";
}

std::optional<QuantType> ParseQuantType(std::string_view name) {
  for (const QuantType type : {QuantType::kInt8, QuantType::kFp4, QuantType::kNf4}) {
    if (Name(type) == name) return type;
  }
  return std::nullopt;
}

std::vector<QuantizedPart> QuantizedParts(const QuantizationConfig& config, int64_t out,
                                          int64_t in) {
  if (config.type == QuantType::kInt8) {
    return {{"weight", {out, in}, DType::kInt8}, {"SCB", {out}, DType::kFloat32}};
  }
  const int64_t elements = out * in;
  const int64_t blocks = Blocks(elements, kBlock);
  const QuantizedPart packed{"weight", {(elements + 1) / 2, 1}, DType::kUInt8};
  const QuantizedPart map{"weight.quant_map", {kValues4Bit}, DType::kFloat32};
  if (!config.use_double_quant) {
    return {{"weight.absmax", {blocks}, DType::kFloat32}, packed, map};
  }
  return {packed,
          map,
          {"weight.nested_offset", {}, DType::kFloat32},
          {"weight.nested_absmax", {Blocks(blocks, kNestedBlock)}, DType::kFloat32},
          {"weight.absmax", {blocks}, DType::kUInt8},
          {"weight.nested_quant_map", {kDynamicMapSize}, DType::kFloat32}};
}

Bytes QuantizedBytes(const QuantizationConfig& config, int64_t out, int64_t in) {
  Bytes bytes;
  for (const QuantizedPart& part : QuantizedParts(config, out, in)) {
    bytes += Bytes(part.shape.NumElements() * ElementSize(part.dtype));
  }
  return bytes;
}

std::vector<ModuleEntry> ConvertedModules(const QuantizationConfig& config,
                                          const ModelConfig& model, const ParameterTable& table,
                                          std::span<const ModuleEntry> modules) {
  std::vector<std::string> skips =
      config.skip_modules ? *config.skip_modules : DefaultSkips(table, modules);
  // _keep_in_fp32_modules of modeling_t5.py and modeling_mt5.py.
  if (model.model_type() == "t5" || model.model_type() == "mt5") skips.emplace_back("wo");
  std::vector<ModuleEntry> converted;
  for (const ModuleEntry& module : modules) {
    if (module.kind == ModuleKind::kEmbedding || IsSkipped(module.path, skips)) continue;
    converted.push_back(module);
  }
  return converted;
}

}  // namespace headroom
