// SPDX-License-Identifier: Apache-2.0
#include "predict/context.h"

#include <fmt/format.h>

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
  const std::string batch = fmt::format("evaluation of {} samples, {} at a time",
                                        evaluation.samples, evaluation.per_device_eval_batch_size);
  if (evaluation.prediction_loss_only || !evaluation.compute_metrics) {
    return batch + ": only losses are kept";
  }
  if (evaluation.eval_accumulation_steps > 0) {
    return fmt::format("{}: logits go to the host every {} passes", batch,
                       evaluation.eval_accumulation_steps);
  }
  return batch + ": all logits stay on the GPU, in fp32, and are copied at each pass";
}

// What the parts of a fine-tuning recipe take as given.
void AddFinetuning(const Recipe& recipe, std::vector<std::string>& lines) {
  if (recipe.lora && recipe.gradient_checkpointing) {
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
    lines.push_back(fmt::format("optimizer {}: not measured", Name(recipe.optim)));
  }
}

}  // namespace

std::vector<ContextPart> OutsideAllocator(const Platform& platform, AttnImplementation attn,
                                          const Recipe& recipe) {
  std::vector<ContextPart> parts = {{"CUDA context", kCudaContext},
                                    {"PyTorch and cuBLAS kernels", kTrainingKernels}};
  if (UsesCudnnAttention(platform, attn, recipe)) {
    parts.push_back({"cuDNN attention kernels", kCudnnAttention});
  }
  return parts;
}

std::vector<std::string> Assumptions(const Recipe& recipe, const Platform& platform,
                                     AttnImplementation attn) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("weights in {}, training in {}, optimizer {}, attention {}",
                              Name(recipe.weights_dtype.value_or(DType::kFloat32)),
                              Name(recipe.precision), Name(recipe.optim), Name(attn)));
  const bool known_torch = platform.torch_version == kMeasuredTorch;
  const bool known_transformers = platform.transformers_version == kMeasuredTransformers;
  lines.push_back(fmt::format(
      "PyTorch {}, transformers {}{}", platform.torch_version, platform.transformers_version,
      known_torch && known_transformers
          ? ""
          : fmt::format(": not measured, taken as PyTorch {} and transformers {}", kMeasuredTorch,
                        kMeasuredTransformers)));
  const bool measured_gpu = platform.gpu.name.find("H200") != std::string_view::npos;
  lines.push_back(measured_gpu
                      ? fmt::format("GPU {}", platform.gpu.name)
                      : fmt::format("GPU {}: not measured; context and kernels taken from an H200",
                                    platform.gpu.name));
  lines.push_back(fmt::format("every sample has {} tokens; {}no checkpoint saved during the run",
                              recipe.sequence_length, recipe.evaluation ? "" : "no evaluation, "));
  AddFinetuning(recipe, lines);
  return lines;
}

}  // namespace headroom::predict
