// SPDX-License-Identifier: Apache-2.0
//
// For tests: the engine against PyTorch, on any backend. bench/engine_golden.py recorded a tiny
// model of each family: weights, one batch, and what PyTorch makes of them in float32.
//
//   const Golden golden = *ReadGolden("tests/data/engine", "gpt2");
//   LossAndGradients(golden, GoldenOptions(golden)).gradients.difference.error   // <
//   kGradientBound
//
// With a device the same is computed there, planned for CUDA; each measurement takes a device that
// has no arena yet. What keeps a measurement from being made is the test's end.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/device.h"
#include "engine/executor.h"
#include "engine/files/safetensors_file.h"
#include "engine/native_step.h"

namespace headroom::engine {

// What float32 may be off by. Of a loss: relative; of a tensor: the difference's norm over the
// norm of what is expected.
inline constexpr double kLossBound = 2e-6;
inline constexpr double kGradientBound = 2e-5;
inline constexpr double kLeastCosine = 0.999999;  // of each gradient
inline constexpr double kOutputBound = 5e-6;      // of logits and hidden states
inline constexpr double kTenLossesBound = 1e-5;   // of ten steps of AdamW

// A recording.
struct Golden {
  std::string name;
  ModelConfig config;
  Task task;
  SafetensorsReader reader;
};

// "bert_classification", "gpt2", …: all that are recorded.
const std::vector<std::string>& GoldenNames();
// NAME.json and NAME.safetensors of the folder.
Result<Golden> ReadGolden(const std::filesystem::path& folder, const std::string& name);
// The recording's batch and optimizer, in float32.
NativeOptions GoldenOptions(const Golden& golden);

struct Difference {
  double cosine = 1;
  double error = 0;  // norm of the difference over the norm of what is expected
};

// The worst of some tensors, and the name of that with the largest error.
struct Worst {
  Difference difference;
  std::string name;

  void Add(const std::string& of, const Difference& other);
};

struct GradientErrors {
  double loss = 0;
  Worst gradients;
};
GradientErrors LossAndGradients(const Golden& golden, NativeOptions options,
                                Device* device = nullptr);

// Of the logits: of the classes, or of the last token.
double LogitsError(const Golden& golden, Device* device = nullptr);
// Of the last hidden state, of the tokens that are not padding.
double HiddenError(const Golden& golden, Device* device = nullptr);

struct SmoothedErrors {
  double loss = 0;
  double gradient = 0;  // of the token embedding
};
// With label smoothing of 0.1.
SmoothedErrors LabelSmoothingErrors(const Golden& golden, Device* device = nullptr);

// The worst of the losses of ten steps of AdamW.
double TenLossesError(const Golden& golden, Device* device = nullptr);

}  // namespace headroom::engine
