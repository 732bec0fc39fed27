// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0: core_model_loading.py, modeling_utils.py (caching_allocator_warmup),
// quantizers/{base,quantizer_bnb_4bit,quantizer_bnb_8bit}.py, integrations/bitsandbytes.py.
#include "predict/load.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/format.h"
#include "predict/modules.h"
#include "predict/quantization.h"

namespace headroom::predict {
namespace {

// A part of a name between dots: numbers before texts, and a text's trailing digits as a number.
using KeyPart = std::tuple<int, std::string, int64_t>;

int64_t NumberAt(std::string_view text, size_t at) {
  constexpr size_t kDigits = 18;
  return at == text.size() ? -1 : std::stoll(std::string(text.substr(at, kDigits)));
}

KeyPart PartOf(std::string_view text) {
  size_t digits = text.size();
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(text[digits - 1])) != 0) --digits;
  if (digits == 0 && !text.empty()) return {0, "", NumberAt(text, 0)};
  return {1, std::string(text.substr(0, digits)), NumberAt(text, digits)};
}

// dot_natural_key, by which the state dict is sorted.
std::vector<KeyPart> SortKey(std::string_view name) {
  std::vector<KeyPart> parts;
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.')) {
    parts.push_back(PartOf(name.substr(0, dot)));
    name.remove_prefix(dot + 1);
  }
  parts.push_back(PartOf(name));
  return parts;
}

std::vector<const ParameterSpec*> InReadingOrder(const ParameterTable& table) {
  std::vector<std::pair<std::vector<KeyPart>, const ParameterSpec*>> keyed;
  for (const ParameterSpec& spec : table.entries()) {
    if (!spec.is_buffer) keyed.emplace_back(SortKey(spec.name), &spec);
  }
  std::sort(keyed.begin(), keyed.end());
  std::vector<const ParameterSpec*> order;
  for (const auto& [key, spec] : keyed) order.push_back(spec);
  return order;
}

std::string_view ModuleOf(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

}  // namespace

bool IsQuantized(const ParameterSpec& spec, const Quantization& quantization) {
  if (quantization.kind == Quantization::Kind::kNone) return false;
  return spec.linear != LinearWeight::kNo && ModuleOf(spec.name) != "lm_head";
}

Result<int64_t> QuantizedParameters(const ModelConfig& config, const ParameterTable& table,
                                    const Quantization& quantization) {
  int64_t count = 0;
  for (const ParameterSpec& spec : table.entries()) {
    if (IsQuantized(spec, quantization)) count += spec.shape.NumElements();
  }
  if (count > 0 || quantization.kind == Quantization::Kind::kNone) return count;
  return Error::BadInput(
      Format("bitsandbytes replaces torch.nn.Linear, of which {} has none: load it in 16 bit",
             config.model_type()));
}

namespace {

// caching_allocator_warmup takes what the process has reserved and does not use into account.
Bytes BeyondUnused(Runtime& runtime, Bytes wanted) {
  constexpr Bytes kWorthIt{3 * (int64_t{1} << 29)};
  const Bytes unused = runtime.ledger().reserved() - runtime.ledger().allocated();
  if (wanted - unused > unused) return wanted - unused;
  return wanted - unused > kWorthIt ? unused + Bytes(1) : Bytes(0);
}

}  // namespace

Bytes WarmUpBytes(const ParameterTable& table, const Recipe& recipe, Bytes memory) {
  const int64_t whole = ElementSize(recipe.weights_dtype.value_or(DType::kFloat32));
  int64_t bytes = 0;
  for (const ParameterSpec& spec : table.entries()) {
    if (spec.is_buffer) continue;
    const int64_t count = spec.shape.NumElements();
    if (!IsQuantized(spec, recipe.quantization)) {
      bytes += count * whole;
    } else {
      bytes += recipe.quantization.kind == Quantization::Kind::kInt8 ? count : count / 2;
    }
  }
  // At most total_device_memory - 1.2 * 1024**3.
  constexpr Bytes kLeftFree{1288490189};
  bytes = std::clamp<int64_t>((memory - kLeftFree).count(), 0, bytes);
  return Bytes(bytes / 2 * 2);  // torch.empty(byte_count // 2, dtype=torch.float16)
}

Weights::Weights(Runtime& runtime, const ParameterTable& table, const Recipe& recipe)
    : runtime_(runtime) {
  const DType dtype = recipe.weights_dtype.value_or(DType::kFloat32);
  const Scoped module(runtime.module, runtime.module);
  const OpScope op(runtime, "from_pretrained");
  {
    const Scoped component(runtime.component, Component::kTemporaries);
    const Platform& platform = runtime.platform();
    const Bytes memory = platform.memory_limit.value_or(platform.gpu.usable);
    const Bytes bytes = BeyondUnused(runtime, WarmUpBytes(table, recipe, memory));
    const Tensor warm_up = Empty(runtime, {bytes.count() / 2}, DType::kFloat16);
  }
  Tensor dynamic_map;
  for (const ParameterSpec* spec : InReadingOrder(table)) {
    runtime.module = runtime.ledger().InternModule(ModuleOf(spec->name));
    const bool quantized = IsQuantized(*spec, recipe.quantization);
    const Scoped component(runtime.component,
                           quantized ? Component::kTemporaries : Component::kWeights);
    Tensor tensor = Empty(runtime, spec->shape, dtype);
    if (quantized) {
      // Conv1D's weight is turned first; the loader holds what it read.
      const bool turned = spec->linear == LinearWeight::kConv1d;
      const Tensor weight = turned ? Contiguous(T(tensor)) : tensor;
      const std::shared_ptr<const QuantizedMatrix> matrix =
          Quantize(weight, recipe.quantization, dynamic_map);
      quantized_.emplace(spec->name, matrix);
      tensor = matrix->data();
    }
    by_name_.emplace(spec->name, std::move(tensor));
  }
  for (const ParameterSpec& spec : table.entries()) {
    if (!spec.is_buffer) {
      parameters_.push_back(by_name_.at(spec.name));
      names_.push_back(spec.name);
      continue;
    }
    // Buffers that no file holds are made afterwards.
    runtime.module = runtime.ledger().InternModule(ModuleOf(spec.name));
    const Scoped component(runtime.component, Component::kInputs);
    by_name_.emplace(spec.name, Empty(runtime, spec.shape, spec.dtype.value_or(dtype)));
  }
}

}  // namespace headroom::predict
