// SPDX-License-Identifier: Apache-2.0
#include "observe/frame_facts.h"

#include <algorithm>
#include <cctype>

namespace headroom::observe {
namespace {

enum class Where : uint8_t {
  kCpp,     // anywhere in a C++ symbol
  kName,    // a Python function of exactly this name
  kInName,  // anywhere in a Python function's name
  kFile,    // the path of a Python file ends so
  kInFile,  // anywhere in a Python file's path
};

struct Rule {
  Where where;
  std::string_view text;
  FrameFact fact;
};

// Read from PyTorch 2.11 (torch/, c10/, aten/ in recorded stacks), transformers 5.17, accelerate
// 1.15 and peft 0.21; older names stand beside newer ones.
constexpr Rule kRules[] = {
    // Autograd
    {Where::kCpp, "autograd::Engine::", FrameFact::kEngine},
    {Where::kCpp, "AccumulateGrad", FrameFact::kAccumulateGrad},
    {Where::kCpp, "c10d::Reducer", FrameFact::kReducer},
    // Optimizers: torch.optim, apex, bitsandbytes, transformers' own, accelerate's wrapper
    {Where::kName, "_init_group", FrameFact::kOptimizerState},
    {Where::kName, "init_state", FrameFact::kOptimizerState},
    {Where::kName, "_lazy_init_scale_growth_tracker", FrameFact::kOptimizerState},
    {Where::kName, "zero_grad", FrameFact::kZeroGrad},
    {Where::kFile, "torch/nn/utils/clip_grad.py", FrameFact::kClip},
    {Where::kFile, "torch/amp/grad_scaler.py", FrameFact::kClip},
    {Where::kFile, "torch/cuda/amp/grad_scaler.py", FrameFact::kClip},
    {Where::kInName, "clip_grad", FrameFact::kClip},
    // Loading
    {Where::kName, "_apply", FrameFact::kLoad},
    {Where::kName, "to_empty", FrameFact::kLoad},
    {Where::kName, "from_pretrained", FrameFact::kLoad},
    {Where::kName, "_load_pretrained_model", FrameFact::kLoad},
    {Where::kName, "_load_state_dict_into_meta_model", FrameFact::kLoad},
    {Where::kName, "_load_parameter_into_model", FrameFact::kLoad},
    {Where::kName, "convert_and_load_state_dict_in_model", FrameFact::kLoad},
    {Where::kName, "_materialize_copy", FrameFact::kLoad},
    {Where::kName, "set_module_tensor_to_device", FrameFact::kLoad},
    {Where::kName, "load_state_dict", FrameFact::kLoad},
    {Where::kName, "load_checkpoint_in_model", FrameFact::kLoad},
    {Where::kName, "reset_parameters", FrameFact::kLoad},
    {Where::kName, "_init_weights", FrameFact::kLoad},
    {Where::kFile, "torch/nn/init.py", FrameFact::kLoad},
    // Data
    {Where::kName, "send_to_device", FrameFact::kData},
    {Where::kName, "_prepare_input", FrameFact::kData},
    {Where::kName, "_prepare_inputs", FrameFact::kData},
    {Where::kName, "batch_to_device", FrameFact::kData},
    {Where::kName, "move_data_to_device", FrameFact::kData},
    {Where::kFile, "torch/utils/data/dataloader.py", FrameFact::kData},
    {Where::kFile, "torch/utils/data/_utils/pin_memory.py", FrameFact::kData},
    // Forward
    {Where::kName, "forward", FrameFact::kForward},
    {Where::kName, "_call_impl", FrameFact::kForward},
    {Where::kName, "_wrapped_call_impl", FrameFact::kForward},
    {Where::kName, "_slow_forward", FrameFact::kForward},
    {Where::kCpp, "at::autocast::", FrameFact::kAutocast},
    // Phases around the step
    {Where::kName, "evaluate", FrameFact::kEvaluation},
    {Where::kName, "evaluation_loop", FrameFact::kEvaluation},
    {Where::kName, "prediction_loop", FrameFact::kEvaluation},
    {Where::kName, "prediction_step", FrameFact::kEvaluation},
    {Where::kName, "validation_step", FrameFact::kEvaluation},
    {Where::kName, "save_pretrained", FrameFact::kSave},
    {Where::kName, "save_model", FrameFact::kSave},
    {Where::kName, "save_checkpoint", FrameFact::kSave},
    {Where::kName, "_save_checkpoint", FrameFact::kSave},
    {Where::kName, "state_dict", FrameFact::kSave},
    {Where::kInFile, "transformers/generation/", FrameFact::kGenerate},
    {Where::kName, "generate", FrameFact::kGenerate},
    // Workspaces
    {Where::kCpp, "getCurrentCUDABlasHandle", FrameFact::kWorkspace},
    {Where::kCpp, "setWorkspaceForHandle", FrameFact::kWorkspace},
    {Where::kCpp, "getCUDABlasLtWorkspace", FrameFact::kWorkspace},
    {Where::kCpp, "getNewWorkspace", FrameFact::kWorkspace},
    {Where::kCpp, "getNewCUDABlasLtWorkspace", FrameFact::kWorkspace},
    // Parts of a model
    {Where::kFile, "masking_utils.py", FrameFact::kMask},
    {Where::kFile, "modeling_attn_mask_utils.py", FrameFact::kMask},
    {Where::kInName, "causal_mask", FrameFact::kMask},
    {Where::kInName, "extended_attention_mask", FrameFact::kMask},
    {Where::kFile, "loss/loss_utils.py", FrameFact::kLoss},
    {Where::kFile, "torch/nn/modules/loss.py", FrameFact::kLoss},
    {Where::kName, "cross_entropy", FrameFact::kLoss},
    {Where::kName, "nll_loss", FrameFact::kLoss},
    {Where::kName, "_convert_to_fp32", FrameFact::kLoss},
    {Where::kInFile, "integrations/sdpa_attention.py", FrameFact::kAttention},
    {Where::kInFile, "integrations/flash_attention.py", FrameFact::kAttention},
    {Where::kInFile, "modeling_flash_attention_utils.py", FrameFact::kAttention},
    {Where::kName, "eager_attention_forward", FrameFact::kAttention},
    {Where::kName, "scaled_dot_product_attention", FrameFact::kAttention},
    {Where::kName, "multi_head_attention_forward", FrameFact::kAttention},
    {Where::kName, "rotate_half", FrameFact::kRotary},
    {Where::kInName, "rotary", FrameFact::kRotary},
    {Where::kInFile, "peft/tuners/", FrameFact::kLora},
    {Where::kFile, "transformers/cache_utils.py", FrameFact::kKvCache},
    {Where::kFile, "transformers/activations.py", FrameFact::kActivationFunction},
    {Where::kFile, "torch/nn/modules/activation.py", FrameFact::kActivationFunction},
    {Where::kName, "gelu", FrameFact::kActivationFunction},
    {Where::kName, "silu", FrameFact::kActivationFunction},
    {Where::kFile, "torch/nn/modules/normalization.py", FrameFact::kNorm},
    {Where::kName, "layer_norm", FrameFact::kNorm},
    {Where::kName, "rms_norm", FrameFact::kNorm},
    {Where::kFile, "torch/nn/modules/sparse.py", FrameFact::kEmbedding},
    {Where::kName, "embedding", FrameFact::kEmbedding},
    {Where::kFile, "torch/nn/modules/dropout.py", FrameFact::kDropout},
    {Where::kFile, "torch/nn/modules/linear.py", FrameFact::kLinear},
    {Where::kFile, "transformers/pytorch_utils.py", FrameFact::kLinear},
    {Where::kInName, "router", FrameFact::kRouting},
    {Where::kInName, "route_tokens", FrameFact::kRouting},
    {Where::kInFile, "integrations/moe.py", FrameFact::kMlp},
    {Where::kInFile, "/modeling_", FrameFact::kModeling},
    // Not worth showing
    {Where::kName, "_call_impl", FrameFact::kPlumbing},
    {Where::kName, "_wrapped_call_impl", FrameFact::kPlumbing},
    {Where::kName, "__call__", FrameFact::kPlumbing},
    {Where::kName, "wrapper", FrameFact::kPlumbing},
    {Where::kName, "wrapped", FrameFact::kPlumbing},
    {Where::kName, "decorate_context", FrameFact::kPlumbing},
    {Where::kName, "decorate_autocast", FrameFact::kPlumbing},
    {Where::kFile, "torch/_dynamo/eval_frame.py", FrameFact::kPlumbing},
    {Where::kCpp, "torch::unwind::", FrameFact::kAllocator},
    {Where::kCpp, "CapturedTraceback", FrameFact::kAllocator},
    {Where::kCpp, "CUDACachingAllocator", FrameFact::kAllocator},
};

bool IsPython(std::string_view filename) {
  return filename.ends_with(".py") || filename.starts_with('<');
}

bool Matches(const Rule& rule, bool python, std::string_view name, std::string_view filename) {
  switch (rule.where) {
    case Where::kCpp:
      return !python && name.find(rule.text) != std::string_view::npos;
    case Where::kName:
      return python && name == rule.text;
    case Where::kInName:
      return python && name.find(rule.text) != std::string_view::npos;
    case Where::kFile:
      return python && filename.ends_with(rule.text);
    case Where::kInFile:
      return python && filename.find(rule.text) != std::string_view::npos;
  }
  return false;
}

// step() of an optimizer class, whoever wrote it; a scheduler's step() moves no tensors.
bool IsOptimizerStep(std::string_view name, std::string_view filename) {
  if (filename.ends_with("lr_scheduler.py")) return false;
  const bool in_optim = filename.find("/optim/") != std::string_view::npos ||
                        filename.find("/optimizers/") != std::string_view::npos ||
                        filename.ends_with("transformers/optimization.py");
  if (in_optim) return name != "zero_grad" && name != "__init__" && name != "wrapper";
  return filename.ends_with("accelerate/optimizer.py") && name == "step";
}

// backward() of a tensor or an Accelerator, before the engine takes over.
bool IsBackwardCall(std::string_view name, std::string_view filename) {
  if (name == "_engine_run_backward") return true;
  return name == "backward" && (filename.ends_with("torch/_tensor.py") ||
                                filename.ends_with("torch/autograd/__init__.py") ||
                                filename.ends_with("accelerate/accelerator.py"));
}

// __init__ of a module that makes its parameters on the device.
bool IsModuleInit(std::string_view name, std::string_view filename) {
  return name == "__init__" && (filename.find("torch/nn/modules/") != std::string_view::npos ||
                                filename.find("/modeling_") != std::string_view::npos ||
                                filename.find("peft/tuners/") != std::string_view::npos);
}

bool IsIdentifier(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

FrameFacts FactsOf(std::string_view name, std::string_view filename) {
  const bool python = IsPython(filename);
  FrameFacts facts = python ? static_cast<uint64_t>(FrameFact::kPython) : 0;
  for (const Rule& rule : kRules) {
    if (Matches(rule, python, name, filename)) facts |= static_cast<uint64_t>(rule.fact);
  }
  if (python && IsOptimizerStep(name, filename)) {
    facts |= static_cast<uint64_t>(FrameFact::kOptimizerStep);
  }
  if (python && IsBackwardCall(name, filename)) {
    facts |= static_cast<uint64_t>(FrameFact::kBackwardCall);
  }
  if (python && IsModuleInit(name, filename)) facts |= static_cast<uint64_t>(FrameFact::kLoad);
  return facts;
}

std::string_view OpOf(std::string_view name) {
  constexpr std::string_view kPrefix = "at::_ops::";
  if (!name.starts_with(kPrefix)) return "";
  const std::string_view rest = name.substr(kPrefix.size());
  return rest.substr(0, rest.find("::"));
}

std::string_view BackwardNodeOf(std::string_view name) {
  constexpr std::string_view kApply = "::apply(";
  const size_t apply = name.find(kApply);
  if (apply == std::string_view::npos) return "";
  size_t begin = apply;
  while (begin > 0 && IsIdentifier(name[begin - 1])) --begin;
  const std::string_view node = name.substr(begin, apply - begin);
  const bool is_node = node.find("Backward") != std::string_view::npos || node == "AccumulateGrad";
  return is_node ? node : "";
}

std::string_view BaseName(std::string_view filename) {
  return filename.substr(filename.find_last_of('/') + 1);
}

}  // namespace headroom::observe
