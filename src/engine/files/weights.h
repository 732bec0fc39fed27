// SPDX-License-Identifier: Apache-2.0
//
// Weights of a model in and out of safetensors files, by the names of transformers.
//
//   HEADROOM_ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::Open("minilm/"));
//   HEADROOM_ASSIGN_OR_RETURN(LoadedWeights loaded, LoadWeights(reader, model, executor));
//   loaded.initialised            // {"classifier.weight", …}: a head that the checkpoint lacks
//
// Both go from the file to the arena, or back, tensor by tensor: there is no second copy.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "engine/executor.h"
#include "engine/files/safetensors_file.h"
#include "engine/models/model_graph.h"

namespace headroom::engine {

struct LoadedWeights {
  // Of a head or a pooler, absent from the file: as they were. transformers' "newly initialized".
  std::vector<std::string> initialised;
  // In the file, and no part of the model: another head's.
  std::vector<std::string> unused;
};

// Fills the weights, and masters, of `executor`, whose graph is the model's. A checkpoint of the
// base model alone, without its prefix, will do, as will other names of tied parameters. Fails on
// base tensors that are absent or of another shape: names the first, and how many more there are.
Result<LoadedWeights> LoadWeights(const SafetensorsReader& reader, const ModelGraph& model,
                                  const Executor& executor);

// Writes what the optimizer holds as exact to the file `path`, as `dtype`, without second names of
// tied parameters: what transformers' save_pretrained writes. What was there stays until all is.
Status SaveWeights(const std::filesystem::path& path, const ModelGraph& model,
                   const Executor& executor, DType dtype = DType::kFloat32);

}  // namespace headroom::engine
