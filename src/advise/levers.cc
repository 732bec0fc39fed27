// SPDX-License-Identifier: Apache-2.0
#include "advise/levers.h"

#include <utility>

namespace headroom {
namespace {

bool IsAutocast(Precision precision) {
  return precision == Precision::kBf16 || precision == Precision::kFp16;
}

bool HalfWeights(const Recipe& recipe) {
  return recipe.weights_dtype && IsHalf(*recipe.weights_dtype);
}

bool Trains(const Recipe& recipe) { return recipe.driver != Driver::kGenerate; }

bool UseFusedAdamW(Variant& variant, const LeverContext&) {
  if (variant.recipe.optim != Optim::kAdamWTorch) return false;
  variant.recipe.optim = Optim::kAdamWTorchFused;
  return true;
}

bool UseSdpa(Variant& variant, const LeverContext& context) {
  if (context.attn_used == AttnImplementation::kSdpa) return false;
  variant.recipe.attn_implementation = AttnImplementation::kSdpa;
  return true;
}

bool UseExpandableSegments(Variant& variant, const LeverContext&) {
  if (variant.allocator.backend == AllocatorOptions::Backend::kExpandableSegments) return false;
  variant.allocator.backend = AllocatorOptions::Backend::kExpandableSegments;
  return true;
}

bool UseCheckpointing(Variant& variant, bool reentrant) {
  if (variant.recipe.gradient_checkpointing) return false;
  // torch-transformer's layers are torch.nn's, which cannot checkpoint themselves; and there is
  // nothing to compute again where nothing runs backward.
  if (variant.recipe.driver != Driver::kTrainer) return false;
  variant.recipe.gradient_checkpointing = true;
  variant.recipe.use_reentrant = reentrant;
  return true;
}
bool UseCheckpointing(Variant& variant, const LeverContext&) {
  return UseCheckpointing(variant, false);
}
bool UseReentrantCheckpointing(Variant& variant, const LeverContext&) {
  return UseCheckpointing(variant, true);
}

bool UseBf16(Variant& variant, const LeverContext& context) {
  if (!Trains(variant.recipe)) return false;
  if (IsAutocast(variant.recipe.precision) || !context.gpu.HasBf16()) return false;
  variant.recipe.precision = Precision::kBf16;
  return true;
}

// Where the GPU has bfloat16, float16 with its scaler has nothing to offer.
bool UseFp16(Variant& variant, const LeverContext& context) {
  if (!Trains(variant.recipe)) return false;
  if (IsAutocast(variant.recipe.precision) || context.gpu.HasBf16()) return false;
  if (HalfWeights(variant.recipe)) return false;
  variant.recipe.precision = Precision::kFp16;
  return true;
}

bool LoadInBf16(Variant& variant, const LeverContext& context) {
  if (HalfWeights(variant.recipe) || !context.gpu.HasBf16()) return false;
  if (variant.recipe.quantization.kind != Quantization::Kind::kNone) return false;
  // GradScaler takes no gradients in 16 bit.
  if (variant.recipe.precision == Precision::kFp16) variant.recipe.precision = Precision::kBf16;
  variant.recipe.weights_dtype = DType::kBFloat16;
  return true;
}

// Whether the weights themselves are updated; else they only lose digits.
bool UpdatesWeights(const Recipe& recipe) { return Trains(recipe) && !recipe.lora; }

bool TrainBf16Weights(Variant& variant, const LeverContext& context) {
  return UpdatesWeights(variant.recipe) && LoadInBf16(variant, context);
}
bool LoadBf16Weights(Variant& variant, const LeverContext& context) {
  return !UpdatesWeights(variant.recipe) && LoadInBf16(variant, context);
}

bool UseOptim(Variant& variant, Optim optim) {
  if (!Trains(variant.recipe)) return false;
  if (variant.recipe.optim == optim || variant.recipe.optim == Optim::kSgd) return false;
  variant.recipe.optim = optim;
  return true;
}
bool Use8BitAdamW(Variant& variant, const LeverContext&) {
  return UseOptim(variant, Optim::kAdamW8bit);
}
bool UseAdafactor(Variant& variant, const LeverContext&) {
  return UseOptim(variant, Optim::kAdafactor);
}
// The setting of the QLoRA paper (arXiv 2305.14314): adapters beside every linear layer.
bool UseLora(Variant& variant, const LeverContext&) {
  if (variant.recipe.lora || variant.recipe.driver != Driver::kTrainer) return false;
  const Task task = variant.recipe.task;
  LoraConfig lora;
  lora.r = 16;
  lora.lora_alpha = 32;
  lora.target_pattern = "all-linear";
  lora.trains_classifier =
      task == Task::kSequenceClassification || task == Task::kTokenClassification;
  variant.recipe.lora = std::move(lora);
  return true;
}

bool UseSgd(Variant& variant, const LeverContext&) { return UseOptim(variant, Optim::kSgd); }

constexpr Lever kLevers[] = {
    {"fused AdamW", "optim", Effect::kSame, Component::kTemporaries, &UseFusedAdamW,
     "one kernel instead of many, and none of their temporaries"},
    {"sdpa attention", "attention", Effect::kSame, Component::kActivations, &UseSdpa,
     "PyTorch's flash, cuDNN or memory-efficient kernel: no matrix of scores is kept"},
    {"expandable segments", "allocator", Effect::kSame, Component::kCache, &UseExpandableSegments,
     "PYTORCH_ALLOC_CONF; free blocks join to larger ones, so that less is lost between them"},
    {"gradient checkpointing", "checkpointing", Effect::kSame, Component::kActivations,
     &UseCheckpointing, "every layer's forward is computed again in backward"},
    {"reentrant checkpointing", "checkpointing", Effect::kSame, Component::kActivations,
     &UseReentrantCheckpointing,
     "the older form of gradient checkpointing: a backward inside the backward"},
    {"bf16 autocast", "precision", Effect::kRounding, Component::kActivations, &UseBf16,
     "products and what they keep in bfloat16; weights stay float32 and get a 16-bit copy"},
    {"fp16 autocast", "precision", Effect::kRounding, Component::kActivations, &UseFp16,
     "products and what they keep in float16, with gradient scaling; weights stay float32"},
    {"8-bit AdamW", "optim", Effect::kRounding, Component::kOptimizer, &Use8BitAdamW,
     "both moments in 8 bit, by blocks (bitsandbytes)"},
    {"weights in bf16", "weights", Effect::kRounding, Component::kWeights, &LoadBf16Weights,
     "half the bytes of what is not trained, and the last digits of its results"},
    {"bf16 weights", "weights", Effect::kTraining, Component::kWeights, &TrainBf16Weights,
     "no float32 copy: updates smaller than 1/256 of a weight are lost to rounding"},
    {"LoRA", "adapters", Effect::kTraining, Component::kOptimizer, &UseLora,
     "the model is frozen; adapters of rank 16 beside every linear layer are trained (PEFT)"},
    {"Adafactor", "optim", Effect::kTraining, Component::kOptimizer, &UseAdafactor,
     "second moments by row and column, no first ones: another optimizer, other learning rates"},
    {"SGD", "optim", Effect::kTraining, Component::kOptimizer, &UseSgd,
     "no optimizer state; Transformers seldom train well with it"},
};

}  // namespace

std::string_view Name(Effect effect) {
  switch (effect) {
    case Effect::kSame:
      return "same result";
    case Effect::kRounding:
      return "fewer bits";
    case Effect::kTraining:
      return "trains differently";
  }
  return "";
}

std::span<const Lever> Levers() { return kLevers; }

}  // namespace headroom
