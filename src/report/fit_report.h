// SPDX-License-Identifier: Apache-2.0
//
// FitReport: what `headroom fit` says, as values; text and JSON are written from it.
//
// Every "needed" is device memory, CUDA context included: the least with which the run completes.
// Step times are estimates that serve to compare; everything else is predicted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "report/text.h"

namespace headroom {

struct FitChange {
  std::vector<std::string> parts;  // "gradient checkpointing", "micro-batch 4 x 8"
  std::string effect;              // "same result", "fewer bits", "trains differently"
  std::string note;
  Bytes needed;
  Bytes saved;
  bool fits = false;
  double step_seconds = 0;
  double step_flops = 0;
  double step_bytes = 0;   // moved
  double time_change = 0;  // a fraction of the asked recipe's step
};

// The largest value that fits with everything else as asked.
struct FitLimit {
  std::optional<int64_t> value;  // unset: not even 1 fits
  // Memory ends it; else the model's positions do, or the end of the search.
  bool limited_by_memory = false;
  int64_t most = 0;
};

struct FitWithoutHelp {
  std::string name;
  std::string why;
};

// How to run the cheapest choice.
struct FitBest {
  std::vector<std::string> parts;
  std::string command;             // "headroom plan MODEL …"
  std::string environment;         // may be empty, as may from_pretrained
  std::string from_pretrained;     // 'dtype="bfloat16"'
  std::string training_arguments;  // "TrainingArguments(…)"; empty of a generation
  std::string lora;                // "LoraConfig(…)"; may be empty
};

struct FitReport {
  std::string model;
  std::vector<std::string> recipe;
  int64_t parameters = 0;
  std::string device;  // "H200"; empty when only a size was given
  std::string timed_on;
  Bytes memory;
  Bytes context;
  Bytes needed;  // by the asked recipe
  bool fits = false;
  double step_seconds = 0;
  double step_flops = 0;
  double step_bytes = 0;
  int64_t batch = 0;
  int64_t sequence = 0;
  std::optional<FitLimit> largest_batch;
  std::optional<FitLimit> largest_sequence;
  std::optional<FitLimit> largest_lora_rank;
  bool changes_tried = false;
  std::vector<FitChange> alone;
  std::vector<FitChange> together;
  std::vector<FitWithoutHelp> without_help;
  std::optional<FitBest> best;
  std::vector<std::string> assumptions;
  std::vector<std::string> warnings;
};

std::string FitText(const FitReport& report, const TextStyle& style);

// {"schema", "model", "device", "asked", "largest", "alone", "together", "without_help", "best",
// "assumptions"}; sizes in bytes, times in seconds, best null when none is needed or none fits.
std::string FitJson(const FitReport& report);

}  // namespace headroom
