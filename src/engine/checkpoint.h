// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints: a folder from which a run goes on as if it had not stopped, to the bit.
//
//   checkpoint-300/model.safetensors      weights as transformers loads them (masters where there
//   are)
//                  config.json
//                  optimizer.safetensors  the optimizer's states
//                  trainer_state.json     step, position in the data, gradient scale, recipe
//                  gemm_algorithms.json   by which algorithms a GPU multiplied matrices; of a run
//                                         on the CPU there is none
//
// It is written as a folder of another name and renamed, so that there is never half of one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/data/batches.h"
#include "engine/device.h"
#include "engine/executor.h"
#include "engine/grad_scaler.h"
#include "engine/models/model_graph.h"
#include "engine/train_options.h"

namespace headroom::engine {

// What a run needs beside its tensors to go on.
struct TrainerState {
  int64_t global_step = 0;
  Position position;  // of the next batch
  GradScaler scaler;
  double loss_sum = 0;  // of the steps so far, for train_loss
  int64_t clipped_steps = 0;
  int64_t skipped_steps = 0;
  // What decides the numbers, by name; a run that resumes must have the same.
  std::map<std::string, std::string> recipe;
};

// "learning_rate" -> "5e-05", …: of everything that changes the result. `steps` is the number that
// the schedule counts to.
std::map<std::string, std::string> RecipeOf(const TrainOptions& options, int64_t steps);

// Text files that belong to the model: config.json, tokenizer.json, …, by file name.
using ModelFiles = std::map<std::string, std::string>;

// Writes the folder, with the algorithms of the device where there is one. A failure leaves what
// was there.
Status SaveCheckpoint(const std::filesystem::path& folder, const ModelGraph& model,
                      const Executor& executor, const TrainerState& state, const ModelFiles& files,
                      const Device* device = nullptr);
// The model alone: model.safetensors and `files`, into a folder that may exist.
Status SaveModel(const std::filesystem::path& folder, const ModelGraph& model,
                 const Executor& executor, const ModelFiles& files);

// Reads weights, states and trainer state. Fails when the recipe differs, naming each difference.
Result<TrainerState> LoadCheckpoint(const std::filesystem::path& folder, const ModelGraph& model,
                                    const Executor& executor,
                                    const std::map<std::string, std::string>& recipe);

// Has the device multiply as the checkpoint's run did, so that the run goes on to the bit. Returns
// one line where it cannot, and results will differ in their last bits: it is another kind of
// device, or none (null), or the file is damaged. Nothing of that is an error. REQUIRES: called
// before Allocate().
std::optional<std::string> TakeAlgorithms(const std::filesystem::path& checkpoint, Device* device);

// The checkpoint-N of the folder with the largest N, if it has any.
std::optional<std::filesystem::path> LastCheckpoint(const std::filesystem::path& folder);

// Removes all but the `keep` newest; 0 keeps all.
void RemoveOldCheckpoints(const std::filesystem::path& folder, int64_t keep);

}  // namespace headroom::engine
