// SPDX-License-Identifier: Apache-2.0
#include "model/recipe.h"

#include <span>

namespace headroom {
namespace {

// The first entry of a value is the name that is printed, later ones are only read.
template <typename Enum>
struct Named {
  std::string_view name;
  Enum value;
};

constexpr Named<Task> kTasks[] = {
    {"sequence-classification", Task::kSequenceClassification},
    {"token-classification", Task::kTokenClassification},
    {"causal-lm", Task::kCausalLm},
    {"masked-lm", Task::kMaskedLm},
    {"seq2seq-lm", Task::kSeq2SeqLm},
    {"image-classification", Task::kImageClassification},
    // The hub's words for the same tasks.
    {"text-classification", Task::kSequenceClassification},
    {"text-generation", Task::kCausalLm},
    {"fill-mask", Task::kMaskedLm},
    {"text2text-generation", Task::kSeq2SeqLm},
};

constexpr Named<Precision> kPrecisions[] = {
    {"fp32", Precision::kFp32},    {"tf32", Precision::kTf32},    {"bf16", Precision::kBf16},
    {"fp16", Precision::kFp16},    {"float32", Precision::kFp32}, {"bfloat16", Precision::kBf16},
    {"float16", Precision::kFp16},
};

constexpr Named<AttnImplementation> kAttnImplementations[] = {
    {"auto", AttnImplementation::kAuto},
    {"eager", AttnImplementation::kEager},
    {"sdpa", AttnImplementation::kSdpa},
    {"flash_attention_2", AttnImplementation::kFlashAttention2},
};

// OptimizerNames of transformers 5.17.0, training_args.py, and torch.optim.Adam's "adam".
constexpr Named<Optim> kOptims[] = {
    {"adamw_torch", Optim::kAdamWTorch},
    {"adamw_torch_fused", Optim::kAdamWTorchFused},
    {"adam", Optim::kAdam},
    {"sgd", Optim::kSgd},
    {"adafactor", Optim::kAdafactor},
    {"adagrad", Optim::kAdagrad},
    {"rmsprop", Optim::kRmsprop},
    {"adamw_bnb_8bit", Optim::kAdamW8bit},
    {"adamw_8bit", Optim::kAdamW8bit},
    {"paged_adamw_8bit", Optim::kPagedAdamW8bit},
    {"paged_adamw_32bit", Optim::kPagedAdamW32bit},
    {"lion_8bit", Optim::kLion8bit},
    {"lion_32bit", Optim::kLion32bit},
    {"paged_lion_8bit", Optim::kPagedLion8bit},
    {"paged_lion_32bit", Optim::kPagedLion32bit},
    {"rmsprop_bnb_8bit", Optim::kRmspropBnb8bit},
    {"rmsprop_bnb_32bit", Optim::kRmspropBnb32bit},
    {"rmsprop_bnb", Optim::kRmspropBnb32bit},
    {"ademamix_8bit", Optim::kAdEMAMix8bit},
    {"ademamix", Optim::kAdEMAMix32bit},
    {"paged_ademamix_8bit", Optim::kPagedAdEMAMix8bit},
    {"paged_ademamix_32bit", Optim::kPagedAdEMAMix32bit},
};

constexpr Named<ProblemType> kProblemTypes[] = {
    {"regression", ProblemType::kRegression},
    {"single_label_classification", ProblemType::kSingleLabel},
    {"multi_label_classification", ProblemType::kMultiLabel},
};

constexpr Named<CacheImplementation> kCaches[] = {
    {"dynamic", CacheImplementation::kDynamic},
    {"static", CacheImplementation::kStatic},
};

constexpr Named<Quantization::Kind> kQuantizations[] = {
    {"none", Quantization::Kind::kNone},
    {"int8", Quantization::Kind::kInt8},
    {"fp4", Quantization::Kind::kFp4},
    {"nf4", Quantization::Kind::kNf4},
};

template <typename Enum>
std::string_view NameIn(std::span<const Named<Enum>> table, Enum wanted) {
  for (const auto& [name, value] : table) {
    if (value == wanted) return name;
  }
  return "unknown";
}

template <typename Enum>
std::optional<Enum> ParseIn(std::span<const Named<Enum>> table, std::string_view wanted) {
  for (const auto& [name, value] : table) {
    if (name == wanted) return value;
  }
  return std::nullopt;
}

constexpr Named<Sharding> kShardings[] = {
    {"one process", Sharding::kNone},
    {"DDP", Sharding::kDdp},
    {"FSDP", Sharding::kFsdp},
    {"ZeRO-1", Sharding::kZero1},
    {"ZeRO-2", Sharding::kZero2},
    {"ZeRO-3", Sharding::kZero3},
    {"tensor parallel", Sharding::kTensorParallel},
};

}  // namespace

std::string_view Name(Sharding sharding) { return NameIn<Sharding>(kShardings, sharding); }

std::string_view Name(Task task) { return NameIn<Task>(kTasks, task); }
std::optional<Task> ParseTask(std::string_view name) { return ParseIn<Task>(kTasks, name); }

std::string_view Name(Precision precision) { return NameIn<Precision>(kPrecisions, precision); }
std::optional<Precision> ParsePrecision(std::string_view name) {
  return ParseIn<Precision>(kPrecisions, name);
}

std::string_view Name(AttnImplementation attn) {
  return NameIn<AttnImplementation>(kAttnImplementations, attn);
}
std::optional<AttnImplementation> ParseAttnImplementation(std::string_view name) {
  return ParseIn<AttnImplementation>(kAttnImplementations, name);
}

std::string_view Name(CacheImplementation cache) {
  return NameIn<CacheImplementation>(kCaches, cache);
}
std::optional<CacheImplementation> ParseCacheImplementation(std::string_view name) {
  return ParseIn<CacheImplementation>(kCaches, name);
}

std::string_view Name(Quantization::Kind kind) {
  return NameIn<Quantization::Kind>(kQuantizations, kind);
}

std::string_view Name(ProblemType type) { return NameIn<ProblemType>(kProblemTypes, type); }
std::optional<ProblemType> ParseProblemType(std::string_view name) {
  return ParseIn<ProblemType>(kProblemTypes, name);
}

std::string_view Name(Optim optim) { return NameIn<Optim>(kOptims, optim); }
std::optional<Optim> ParseOptim(std::string_view name) { return ParseIn<Optim>(kOptims, name); }
std::vector<std::string_view> OptimNames() {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : kOptims) names.push_back(name);
  return names;
}

bool ReadsOntoDevice(const Recipe& recipe) {
  return recipe.loading == Loading::kDeviceMap ||
         recipe.quantization.kind != Quantization::Kind::kNone;
}

}  // namespace headroom
