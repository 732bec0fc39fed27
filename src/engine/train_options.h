// SPDX-License-Identifier: Apache-2.0
//
// TrainOptions: what a native run is to do, under the names of TrainingArguments, with its
// defaults.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/native_step.h"
#include "engine/schedule.h"

namespace headroom::engine {

struct TrainOptions {
  Task task = Task::kCausalLm;
  int64_t per_device_train_batch_size = 8;
  int64_t gradient_accumulation_steps = 1;
  int64_t sequence_length = 0;         // the largest batch's; 0: the longest example's
  int64_t target_sequence_length = 0;  // likewise, of the decoder
  double num_train_epochs = 3;
  int64_t max_steps = 0;  // 0: num_train_epochs

  ScheduleKind lr_scheduler_type = ScheduleKind::kLinear;
  double learning_rate = 5e-5;
  double warmup_steps = 0;  // below 1: a share of all steps
  double weight_decay = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;  // 0: no clipping
  double label_smoothing_factor = 0;
  graph::OptimizerOptions optimizer;

  Precision precision = Precision::kFp32;
  bool lean = false;
  graph::Recompute recompute = graph::Recompute::kNone;
  int64_t loss_chunk_rows = 0;  // logits of so many rows at a time; 0: the engine's choice

  // A budget is kept by what leaves every bit of the run as it is, or not at all (budget.h).
  bool deterministic = false;

  // Planned for the CUDA backend, with its workspaces.
  bool cuda = false;

  uint64_t seed = 42;
  bool group_by_length = false;
  int64_t logging_steps = 10;
  int64_t eval_steps = 0;            // 0: at the end
  int64_t save_steps = 0;            // 0: at the end
  int64_t save_total_limit = 0;      // 0: all are kept
  int64_t samples = 0;               // that a language model writes at the end
  std::filesystem::path output_dir;  // empty: nothing is written
};

// The engine's part of it for a batch of this shape.
NativeOptions NativeOptionsOf(const TrainOptions& options, int64_t sequence,
                              int64_t target_sequence);

}  // namespace headroom::engine
