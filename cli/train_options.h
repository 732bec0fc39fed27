// SPDX-License-Identifier: Apache-2.0
//
// What the flags of `headroom train` ask for. Names and defaults are TrainingArguments'; a file of
// them (--args) is overridden by flags.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "base/bytes.h"
#include "base/result.h"
#include "device.h"
#include "engine/train_options.h"

namespace headroom::cli {

struct TrainCommand {
  std::string model;
  engine::TrainOptions train;  // its task only counts when `task` is set
  std::optional<Task> task;

  // Where examples come from.
  bool synthetic = false;
  int64_t dataset_rows = 512;
  std::filesystem::path train_file;
  std::filesystem::path validation_file;
  std::optional<double> validation_split;
  std::filesystem::path tokenizer;  // empty: the model's folder

  std::optional<DeviceName> device;  // unset: as the machine has it
  std::optional<Bytes> memory_budget;
  std::optional<std::filesystem::path> resume;  // empty path: the newest of output_dir
  bool from_scratch = false;                    // not the weights of the model's folder
  bool dry_run = false;
  bool json = false;
  bool by_module = false;
  std::filesystem::path html;
  std::filesystem::path log;
  std::vector<std::string> warnings;
};

const Syntax& TrainSyntax();
// The flags that decide a native plan, for `plan --engine native` too.
Result<TrainCommand> ReadTrainCommand(const Arguments& arguments);

}  // namespace headroom::cli
