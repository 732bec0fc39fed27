// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0: base_model_tp_plan and _tp_plan of the model classes,
// distributed/tensor_parallel.py.
#include "predict/tensor_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/format.h"
#include "predict/ops.h"

namespace headroom::predict {
namespace {

// q, k, v, gate and up are "colwise", o and down "rowwise", the head "colwise_gather_output".
constexpr std::array<std::string_view, 9> kPlanned = {
    "gemma", "gemma2", "granite", "llama", "mistral", "olmo", "qwen2", "qwen3", "smollm3"};

Status MustDivide(const ModelConfig& config, std::string_view key, int64_t ranks) {
  const std::optional<int64_t> size = config.MaybeInt(key);
  if (!size || *size % ranks == 0) return {};
  return Error::BadInput(
      Format("--tensor-parallel-size {} does not divide the model's {} {}", ranks, key, *size));
}

std::string Json(int64_t value) { return std::to_string(value); }

}  // namespace

Result<ModelConfig> RankConfig(const ModelConfig& config, const Recipe& recipe) {
  const int64_t ranks = recipe.parallel.ranks;
  if (std::find(kPlanned.begin(), kPlanned.end(), config.model_type()) == kPlanned.end()) {
    return Error::Unsupported(
        Format("tensor parallelism is modelled for {}, not for model_type \"{}\"",
               fmt::join(kPlanned, ", "), config.model_type()));
  }
  if (recipe.task != Task::kCausalLm) {
    return Error::Unsupported("tensor parallelism is modelled for causal-lm");
  }
  for (const std::string_view key :
       {"num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size"}) {
    HEADROOM_RETURN_IF_ERROR(MustDivide(config, key, ranks));
  }
  const int64_t heads = config.Int("num_attention_heads");
  const int64_t kv_heads = config.MaybeInt("num_key_value_heads").value_or(heads);
  const int64_t head_dim = config.MaybeInt("head_dim").value_or(config.Int("hidden_size") / heads);
  return config.With("head_dim", Json(head_dim))
      .With("num_attention_heads", Json(heads / ranks))
      .With("num_key_value_heads", Json(kv_heads / ranks))
      .With("intermediate_size", Json(config.Int("intermediate_size") / ranks));
}

ParameterTable RankTable(const ParameterTable& table, const Recipe& recipe) {
  ParameterTable rank;
  for (const ParameterSpec& entry : table.entries()) {
    if (entry.is_buffer) {
      rank.Add(entry);
      continue;
    }
    Shape shape = entry.shape;
    if (entry.name == "lm_head.weight") shape[0] /= recipe.parallel.ranks;
    rank.Add(entry.name, shape);
  }
  return rank;
}

// torch/optim/adam.py, _single_tensor_adam: exp_avg_sq.sqrt(), and what it is divided by. All
// states are there when the first parameter is stepped.
void TensorParallel::EndStep() {
  if (optim_ != Optim::kAdamWTorch && optim_ != Optim::kAdamWTorchFused) return;
  const Tensor* largest = nullptr;
  for (const Tensor& parameter : weights_.parameters()) {
    if (largest == nullptr || parameter.numel() > largest->numel()) largest = &parameter;
  }
  const Scoped component(runtime_.component, Component::kTemporaries);
  const Scoped kind(runtime_.kind, Kind::kForeach);
  const OpScope op(runtime_, "optimizer.step");
  const Tensor root = EmptyLike(*largest);
  const Tensor denominator = EmptyLike(*largest);
}

void WarmUp(Runtime& runtime, const ParameterTable& table, DType dtype) {
  const OpScope op(runtime, "caching_allocator_warmup");
  const Bytes unused = runtime.ledger().reserved() - runtime.ledger().allocated();
  const Bytes bytes = table.parameter_bytes(dtype) - unused;
  if (bytes > Bytes(0)) const Ref<Storage> block = runtime.Scratch(bytes.count());
}

}  // namespace headroom::predict
