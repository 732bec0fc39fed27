// SPDX-License-Identifier: Apache-2.0
#include "predict/context.h"

#include <utility>

#include "base/format.h"
#include "predict/generate.h"

namespace headroom::predict {
namespace {

// Measured on an H200 with driver 580.159 and PyTorch 2.11.0+cu130 (tests/data/hf_memory.jsonl):
// the process's figure after torch.ones((1, 1)).to("cuda") …
constexpr Bytes kCudaContext = MiB(520);
// … and what the kernels of PyTorch, cuBLAS and cuBLASLt add once a training step has run them
// (lazy module loading: final_process - final_reserved, 742 MiB in every run without fused
// attention)
constexpr Bytes kTrainingKernels = MiB(222);
// … and cuDNN's attention engines (758 MiB in every run with them).
constexpr Bytes kCudnnAttention = MiB(16);

// Generation runs fewer kernels: 678 MiB where attention is eager, 686 to 690 with cuDNN's forward
// (the rows of mode "generate").
constexpr Bytes kGenerationKernels = MiB(158);
constexpr Bytes kCudnnAttentionForward = MiB(10);

// LLM.int8() multiplies through a cuBLAS handle of bitsandbytes' own, whose workspace no allocator
// of PyTorch sees (the rows with int8 weights, in training and generation).
constexpr Bytes kBitsandbytesHandle = MiB(64);

constexpr std::string_view kMeasuredTorch = "2.11.0";
constexpr std::string_view kMeasuredTransformers = "5.17.0";

bool UsesCudnnAttention(const Platform& platform, AttnImplementation attn, const Recipe& recipe) {
  const bool half = recipe.precision == Precision::kBf16 || recipe.precision == Precision::kFp16 ||
                    (recipe.weights_dtype && IsHalf(*recipe.weights_dtype));
  return attn == AttnImplementation::kSdpa && half &&
         (platform.gpu.compute_major == 9 || platform.gpu.compute_major == 10);
}

bool IsPaged(Optim optim) { return Name(optim).starts_with("paged_"); }

// bitsandbytes' optimizers that no run of tests/data was made with.
bool IsUnmeasured(Optim optim) {
  switch (optim) {
    case Optim::kPagedLion8bit:
    case Optim::kPagedLion32bit:
    case Optim::kRmspropBnb32bit:
    case Optim::kAdEMAMix32bit:
    case Optim::kPagedAdEMAMix8bit:
    case Optim::kPagedAdEMAMix32bit:
      return true;
    default:
      return false;
  }
}

std::string EvaluationLine(const Evaluation& evaluation) {
  const std::string batch = Format("evaluation of {} samples, {} at a time", evaluation.samples,
                                   evaluation.per_device_eval_batch_size);
  if (evaluation.prediction_loss_only || !evaluation.compute_metrics) {
    return batch + ": only losses are kept";
  }
  if (evaluation.eval_accumulation_steps > 0) {
    return Format("{}: logits go to the host every {} passes", batch,
                  evaluation.eval_accumulation_steps);
  }
  return batch + ": all logits stay on the GPU, in fp32, and are copied at each pass";
}

// What the parts of a fine-tuning recipe take as given.
void AddFinetuning(const Recipe& recipe, std::vector<std::string>& lines) {
  if (recipe.kbit) {
    lines.push_back(
        Format("prepare_model_for_kbit_training: what is not quantised is cast to float32{}",
               recipe.gradient_checkpointing ? ", gradient checkpointing is on" : ""));
  }
  if (recipe.lora && recipe.gradient_checkpointing && !recipe.kbit) {
    lines.emplace_back("enable_input_require_grads() is called, as checkpointed adapters need");
  }
  if (recipe.lora && recipe.lora->lora_bias) {
    lines.emplace_back("lora_bias: not measured");
  }
  if (recipe.evaluation) lines.push_back(EvaluationLine(*recipe.evaluation));
  if (recipe.evaluation && recipe.gradient_checkpointing) {
    lines.emplace_back("evaluation beside gradient checkpointing: not measured");
  }
  if (IsPaged(recipe.optim)) {
    lines.emplace_back("paged optimizer states lie in managed memory and are not counted");
  }
  if (IsUnmeasured(recipe.optim)) {
    lines.push_back(Format("optimizer {}: not measured", Name(recipe.optim)));
  }
}

}  // namespace

std::vector<ContextPart> OutsideAllocator(const Platform& platform, AttnImplementation attn,
                                          const Recipe& recipe) {
  const bool generates = recipe.driver == Driver::kGenerate;
  std::vector<ContextPart> parts = {
      {"CUDA context", kCudaContext},
      {"PyTorch and cuBLAS kernels", generates ? kGenerationKernels : kTrainingKernels}};
  if (UsesCudnnAttention(platform, attn, recipe)) {
    parts.push_back(
        {"cuDNN attention kernels", generates ? kCudnnAttentionForward : kCudnnAttention});
  }
  if (recipe.quantization.kind == Quantization::Kind::kInt8) {
    parts.push_back({"bitsandbytes' cuBLAS handle", kBitsandbytesHandle});
  }
  return parts;
}

namespace {

// What a generation takes as given.
std::vector<std::string> GenerationTerms(const Recipe& recipe) {
  std::vector<std::string> parts;
  const Generation& options = recipe.generation;
  if (recipe.quantization.kind != Quantization::Kind::kNone) {
    parts.push_back(Format("{} weights as bitsandbytes 0.50.2 keeps and multiplies them",
                           Name(recipe.quantization.kind)));
  }
  if (recipe.quantization.kind == Quantization::Kind::kInt8) {
    parts.emplace_back("no activation beyond LLM.int8()'s outlier threshold");
  }
  if (options.use_cache && options.cache == CacheImplementation::kStatic) {
    parts.emplace_back("decoding without torch.compile (disable_compile=True)");
  }
  if (options.do_sample && options.num_beams > 1) {
    parts.emplace_back("sampling with beams: not measured");
  }
  return parts;
}

std::vector<std::string> GenerationLines(const Recipe& recipe, AttnImplementation attn) {
  std::vector<std::string> lines;
  lines.push_back(Format("weights in {}, model.generate under no_grad, attention {}",
                         Name(recipe.weights_dtype.value_or(DType::kFloat32)), Name(attn)));
  for (std::string& part : GenerationTerms(recipe)) lines.push_back(std::move(part));
  return lines;
}

}  // namespace

std::vector<std::string> Assumptions(const Recipe& recipe, const Platform& platform,
                                     AttnImplementation attn) {
  std::vector<std::string> lines;
  const bool generates = recipe.driver == Driver::kGenerate;
  if (generates) {
    lines = GenerationLines(recipe, attn);
  } else {
    lines.push_back(Format("weights in {}, training in {}, optimizer {}, attention {}",
                           Name(recipe.weights_dtype.value_or(DType::kFloat32)),
                           Name(recipe.precision), Name(recipe.optim), Name(attn)));
  }
  const bool known_torch = platform.torch_version == kMeasuredTorch;
  const bool known_transformers = platform.transformers_version == kMeasuredTransformers;
  lines.push_back(Format("PyTorch {}, transformers {}{}", platform.torch_version,
                         platform.transformers_version,
                         known_torch && known_transformers
                             ? ""
                             : Format(": not measured, taken as PyTorch {} and transformers {}",
                                      kMeasuredTorch, kMeasuredTransformers)));
  const bool measured_gpu = platform.gpu.name.find("H200") != std::string_view::npos;
  lines.push_back(measured_gpu
                      ? Format("GPU {}", platform.gpu.name)
                      : Format("GPU {}: not measured; context and kernels taken from an H200",
                               platform.gpu.name));
  if (generates) {
    lines.push_back(Format("every prompt has {} tokens, and every sequence {} more",
                           recipe.sequence_length, recipe.generation.max_new_tokens));
    if (StepsBetween(recipe.generation.max_new_tokens) > 0) {
      lines.push_back(
          Format("after {} tokens only some steps are played: what is reserved between them "
                 "may be a little less than in the run",
                 kPlayedSteps));
    }
  } else {
    lines.push_back(Format("every sample has {} tokens; {}no checkpoint saved during the run",
                           recipe.sequence_length, recipe.evaluation ? "" : "no evaluation, "));
    AddFinetuning(recipe, lines);
  }
  return lines;
}

}  // namespace headroom::predict
