// SPDX-License-Identifier: Apache-2.0
//
// The models and GPUs that Headroom knows by name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace headroom {

// A model people use, under its Hugging Face name, with the config.json it is published with (keys
// that equal the class's default may be left out).
struct KnownModel {
  std::string_view name;         // "google-bert/bert-large-uncased"
  std::string_view config_json;  // {"model_type": "bert", …, "architectures": […], "dtype": …}
};

std::span<const KnownModel> KnownModels();
// By full name or the part behind the slash, case-insensitive; null when unknown.
const KnownModel* FindKnownModel(std::string_view name);
// An error that names the nearest known model and the command that downloads its config.
Error UnknownModel(std::string_view name);

// A GPU as CUDA reports it.
struct Gpu {
  std::string_view name;  // "NVIDIA H200", the words of nvidia-smi without "NVIDIA "
  Bytes usable;           // total of cudaMemGetInfo on an idle card
  int compute_major = 0;  // compute capability 9.0 is {9, 0}
  int compute_minor = 0;
  double memory_bandwidth = 0;  // bytes a second, data sheet
  double bf16_flops = 0;        // dense tensor-core FLOP a second in 16 bit (fp16 before Ampere)
  double tf32_flops = 0;        // dense TF32 products; 0 before Ampere, which has none
  double fp32_flops = 0;        // outside the tensor cores
  bool measured = false;    // `usable` was read on such a card; else derived, see catalogue_gpus.cc
  int multiprocessors = 0;  // streaming multiprocessors, data sheet; reductions split by them

  // PyTorch's CUDAHooks: bf16 arithmetic in hardware from compute capability 8.0 on.
  bool HasBf16() const { return compute_major >= 8; }
};

std::span<const Gpu> KnownGpus();
// By name, ignoring case, "NVIDIA", spaces and dashes: "h200", "RTX 4090", "a100-80gb". An unknown
// name is an error that names the nearest.
Result<Gpu> FindGpu(std::string_view name);

}  // namespace headroom
