// SPDX-License-Identifier: Apache-2.0
//
// Measured rows: a JSONL file of real runs, one object a line, as shared by hf_memory.py.
//
//   {"id": "gpt2--b4", "task": "causal-lm", "config": {"model_type": "gpt2", …},
//    "recipe": {"batch": 4, "seq": 512, "precision": "bf16", "steps": 3},
//    "params": 124439808, "phases": [["train_begin", 510342192, 510342192, 524288000], …],
//    "peak_allocated": …, "peak_reserved": …, "final_process": …, "final_reserved": …}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/recipe.h"

namespace headroom::cli {

struct MeasuredPhase {
  std::string name;
  int64_t allocated = 0;
  int64_t peak = 0;
};

struct MeasuredRow {
  std::string id;
  std::string model_type;
  std::string config_json;
  Recipe recipe;
  std::string alloc_conf;
  // Why the run is of a kind that is not modelled ("LoRA", "generation"); empty when it is.
  std::string unsupported;

  // Unset where the row does not say.
  std::optional<int64_t> parameters;
  std::optional<int64_t> after_model_allocated;
  std::optional<int64_t> peak_allocated;
  std::optional<int64_t> peak_reserved;
  std::optional<int64_t> device;  // peak_reserved + final_process - final_reserved
  // The smallest cap on reserved memory under which the run was seen to complete, and the largest
  // under which it was seen to fail: both or neither.
  std::optional<int64_t> completes_at;
  std::optional<int64_t> fails_at;
  std::vector<MeasuredPhase> phases;
};

// Reads every line of `text`; empty lines are passed over. A line that is no row is an error that
// names `origin` and the line's number. A row whose recipe has parts that are not known comes back
// as unsupported. What a line repeats is said in `warnings`.
Result<std::vector<MeasuredRow>> ReadMeasuredRows(std::string_view text, std::string_view origin,
                                                  std::vector<std::string>& warnings);

}  // namespace headroom::cli
