// SPDX-License-Identifier: Apache-2.0
//
// The flags of `headroom plan` that spread a run over several GPUs, or over batches of different
// lengths.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "base/result.h"
#include "model/device_map.h"
#include "model/recipe.h"

namespace headroom::cli {

inline constexpr Flag kParallelFlags[] = {
    {"--nproc-per-node", Takes::kValue, "N",
     "ranks that train, one GPU each, as of torchrun; one rank is predicted (DDP, unless a flag "
     "below shards it)"},
    {"--fsdp", Takes::kOptionalValue, "WORDS",
     "FSDP2: full_shard (default) or shard_grad_op, with auto_wrap"},
    {"--fsdp-activation-checkpointing", Takes::kNothing, "", "fsdp_config's checkpointing"},
    {"--deepspeed-stage", Takes::kValue, "N", "ZeRO 1, 2 or 3"},
    {"--tensor-parallel-size", Takes::kValue, "N",
     "ranks that share every large matrix, by the model's tp_plan"},
    {"--ddp-bucket-cap-mb", Takes::kValue, "N", "largest gradient bucket of DDP (default 25)"},
    {"--ddp-find-unused-parameters", Takes::kOptionalValue, "BOOL",
     "as Trainer sets it by default: true without gradient checkpointing"},
};

// Reports of their own, of `plan` alone.
inline constexpr Flag kPlacementFlags[] = {
    {"--device-map", Takes::kValue, "MAP",
     "inference with layers placed over --gpus cards: auto or sequential"},
    {"--gpus", Takes::kValue, "N", "cards of --gpu or --memory for --device-map"},
    {"--lengths", Takes::kValue, "FILE",
     "play batches of these lengths in turn: a number a line, or {\"batch\": 8, \"seq\": 512}"},
};

struct ParallelOptions {
  std::optional<DeviceMapKind> device_map;
  int64_t gpus = 1;
  std::string lengths_path;
};

// --trainer: defaults, which the --args file and flags win over.
Status ReadTrainer(const Arguments& arguments, Recipe& recipe);

// Reads the flags into `options` and `recipe`; `recipe` already holds the batch size. Fails on
// flags that exclude each other.
Status ReadParallelOptions(const Arguments& arguments, ParallelOptions& options, Recipe& recipe);

// The batches of a --lengths file: a length a line, or a JSON object with "seq" and "batch". Lines
// that say no batch size have `samples`. Fails with the line's number.
Result<std::vector<BatchShape>> ReadLengths(std::string_view text, std::string_view origin,
                                            int64_t samples);

}  // namespace headroom::cli
