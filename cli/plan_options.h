// SPDX-License-Identifier: Apache-2.0
//
// What the flags of `headroom plan` ask for, each value checked by itself.
//
// Later words win in this order: TrainingArguments' defaults, the --args file, the flags. What
// needs the model's config (its dtype, its task) is decided in make_plan.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arguments.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/result.h"
#include "model/catalogue.h"
#include "model/recipe.h"
#include "parallel_options.h"
#include "predict/predict.h"

namespace headroom::cli {

struct PlanOptions {
  std::string model;

  // The --args file and the flags, folded over the defaults. Its task, sequence_length and
  // weights_dtype only count where the fields below say that somebody asked for them.
  Recipe recipe;
  std::optional<Task> task;
  std::optional<int64_t> sequence_length;
  std::optional<DType> weights_dtype;
  bool batch_given = false;
  bool optim_given = false;
  bool target_sequence_given = false;

  std::optional<std::string> torch_version;
  std::optional<std::string> transformers_version;
  AllocatorOptions allocator;
  std::string alloc_conf;  // as written; empty when not given

  std::optional<Gpu> gpu;
  std::optional<Bytes> memory;

  ParallelOptions parallel;

  bool native = false;      // --engine native: the engine's own plan
  bool native_cuda = true;  // for a GPU, with what a run has there beside its arena
  bool json = false;
  bool by_module = false;
  std::string html_path;      // empty: no page is written
  std::string ledger_path;    // likewise: a ledger
  std::string snapshot_path;  // likewise: a PyTorch snapshot
  std::string trace_path;     // likewise: a Chrome trace

  std::vector<std::string> warnings;  // of the --args file
};

const Syntax& PlanSyntax();
// The flags that describe a run and the machine, for subcommands that take a recipe too.
std::span<const FlagGroup> RecipeFlags();

struct Range {
  int64_t smallest;
  int64_t largest;
};
// A whole number in the range; the message of an error names the flag and what to write instead.
Result<int64_t> ReadCount(std::string_view flag, std::string_view text, Range range);

// Checks every flag and reads the --args file. The message of an error names the flag, the value
// and what to write instead.
Result<PlanOptions> ReadPlanOptions(const Arguments& arguments, std::string_view command = "plan");
// Those of RecipeFlags() alone, for `model`.
Result<PlanOptions> ReadRecipeOptions(const Arguments& arguments, std::string model);

}  // namespace headroom::cli
