// SPDX-License-Identifier: Apache-2.0
//
// Parallel: how a run is spread over several GPUs, one process (rank) each, under the names of
// torchrun, TrainingArguments and DeepSpeed. What is predicted is one rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace headroom {

enum class Sharding : uint8_t {
  kNone,            // one process
  kDdp,             // DistributedDataParallel: every rank holds everything
  kFsdp,            // FSDP2 (fully_shard): a share of weights, gradients and states
  kZero1,           // DeepSpeed: states sharded
  kZero2,           // and gradients
  kZero3,           // and weights
  kTensorParallel,  // transformers' tp_plan: a share of every large matrix
};
std::string_view Name(Sharding sharding);  // "DDP", "FSDP", …

struct Parallel {
  Sharding sharding = Sharding::kNone;
  int64_t ranks = 1;  // torchrun --nproc-per-node
  // fsdp_config
  bool reshard_after_forward = true;      // "full_shard"; false is "shard_grad_op"
  bool activation_checkpointing = false;  // fsdp_config's, in place of gradient_checkpointing
  // TrainingArguments.ddp_*
  std::optional<int64_t> ddp_bucket_cap_mb;
  std::optional<bool> ddp_find_unused_parameters;

  bool operator==(const Parallel&) const = default;
};

}  // namespace headroom
