// SPDX-License-Identifier: Apache-2.0
#include "model/parameter_table.h"

#include <array>

#include "base/nearest.h"
#include "model/parameter_builders.h"

namespace headroom {
namespace {

struct Builder {
  std::string_view model_type;
  Result<ParameterTable> (*build)(const ModelConfig& config, Task task);
};

constexpr std::array kBuilders = {
    Builder{"albert", &AlbertParameters},
    Builder{"bart", &BartParameters},
    Builder{"bert", &BertParameters},
    Builder{"bloom", &BloomParameters},
    Builder{"camembert", &RobertaParameters},
    Builder{"codegen", &CodegenParameters},
    Builder{"cohere", &DecoderParameters},
    Builder{"deit", &VitParameters},
    Builder{"deberta-v2", &DebertaV2Parameters},
    Builder{"distilbert", &DistilBertParameters},
    Builder{"electra", &ElectraParameters},
    Builder{"falcon", &FalconParameters},
    Builder{"gemma", &DecoderParameters},
    Builder{"gemma2", &DecoderParameters},
    Builder{"gemma3_text", &DecoderParameters},
    Builder{"gpt2", &Gpt2Parameters},
    Builder{"gpt_bigcode", &GptBigcodeParameters},
    Builder{"gpt_neo", &GptNeoParameters},
    Builder{"gpt_neox", &GptNeoxParameters},
    Builder{"gptj", &GptjParameters},
    Builder{"granite", &DecoderParameters},
    Builder{"llama", &DecoderParameters},
    Builder{"marian", &BartParameters},
    Builder{"mbart", &BartParameters},
    Builder{"mistral", &DecoderParameters},
    Builder{"mixtral", &DecoderParameters},
    Builder{"mt5", &T5Parameters},
    Builder{"modernbert", &ModernBertParameters},
    Builder{"mpt", &MptParameters},
    Builder{"olmo", &DecoderParameters},
    Builder{"olmo2", &DecoderParameters},
    Builder{"opt", &OptParameters},
    Builder{"pegasus", &BartParameters},
    Builder{"phi", &DecoderParameters},
    Builder{"phi3", &DecoderParameters},
    Builder{"qwen2", &DecoderParameters},
    Builder{"qwen2_moe", &DecoderParameters},
    Builder{"qwen3", &DecoderParameters},
    Builder{"qwen3_moe", &DecoderParameters},
    Builder{"t5", &T5Parameters},
    Builder{"roberta", &RobertaParameters},
    Builder{"smollm3", &DecoderParameters},
    Builder{"stablelm", &DecoderParameters},
    Builder{"starcoder2", &DecoderParameters},
    Builder{"torch-transformer", &TorchTransformerParameters},
    Builder{"vit", &VitParameters},
    Builder{"whisper", &WhisperParameters},
    Builder{"xlm-roberta", &RobertaParameters},
};

}  // namespace

Result<ParameterTable> ParameterTable::Build(const ModelConfig& config, Task task) {
  for (const Builder& builder : kBuilders) {
    if (builder.model_type == config.model_type()) return builder.build(config, task);
  }
  const std::vector<std::string_view> known = SupportedModelTypes();
  return Error::Unsupported("model_type \"" + config.model_type() + "\" is not modelled yet" +
                            DidYouMean(config.model_type(), known));
}

std::vector<std::string_view> ParameterTable::SupportedModelTypes() {
  std::vector<std::string_view> types;
  for (const Builder& builder : kBuilders) types.push_back(builder.model_type);
  return types;
}

const ParameterSpec* ParameterTable::Find(std::string_view name) const {
  for (const ParameterSpec& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

int64_t ParameterTable::parameter_count() const {
  int64_t count = 0;
  for (const ParameterSpec& entry : entries_) {
    if (!entry.is_buffer) count += entry.shape.NumElements();
  }
  return count;
}

int64_t ParameterTable::trainable_count() const {
  int64_t count = 0;
  for (const ParameterSpec& entry : entries_) {
    if (!entry.is_buffer && !entry.frozen) count += entry.shape.NumElements();
  }
  return count;
}

Bytes ParameterTable::parameter_bytes(DType dtype) const {
  return Bytes(parameter_count() * ElementSize(dtype));
}

Bytes ParameterTable::buffer_bytes(DType loaded) const {
  Bytes bytes;
  for (const ParameterSpec& entry : entries_) {
    if (!entry.is_buffer) continue;
    bytes += Bytes(entry.shape.NumElements() * ElementSize(entry.TypeIn(loaded)));
  }
  return bytes;
}

void ParameterTable::Add(std::string name, Shape shape) {
  entries_.push_back({.name = std::move(name), .shape = shape});
}

void ParameterTable::Add(ParameterSpec spec) { entries_.push_back(std::move(spec)); }

void ParameterTable::AddBuffer(std::string name, Shape shape, DType dtype) {
  entries_.push_back({.name = std::move(name), .shape = shape, .is_buffer = true, .dtype = dtype});
}

void ParameterTable::AddBuffer(std::string name, Shape shape) {
  entries_.push_back({.name = std::move(name), .shape = shape, .is_buffer = true});
}

void ParameterTable::AddLinear(const std::string& name, int64_t in, int64_t out, bool bias) {
  Add(name + ".weight", {out, in});
  entries_.back().linear = LinearWeight::kLinear;
  if (bias) Add(name + ".bias", {out});
}

void ParameterTable::AddConv1d(const std::string& name, int64_t in, int64_t out) {
  Add(name + ".weight", {in, out});
  entries_.back().linear = LinearWeight::kConv1d;
  Add(name + ".bias", {out});
}

void ParameterTable::AddLayerNorm(const std::string& name, int64_t size, bool bias) {
  Add(name + ".weight", {size});
  if (bias) Add(name + ".bias", {size});
}

Error UnsupportedTask(const ModelConfig& config, Task task) {
  return Error::Unsupported("task " + std::string(Name(task)) +
                            " is not modelled for model_type \"" + config.model_type() + "\"");
}

Status CheckDivisible(const ModelConfig& config, std::string_view size, std::string_view parts) {
  const int64_t whole = config.Int(size);
  const int64_t by = config.Int(parts);
  if (by > 0 && whole % by == 0) return {};
  return Error::BadInput(std::string(size) + " " + std::to_string(whole) + " is not divisible by " +
                         std::string(parts) + " " + std::to_string(by) +
                         ": correct one of them in config.json");
}

}  // namespace headroom
