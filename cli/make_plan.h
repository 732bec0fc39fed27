// SPDX-License-Identifier: Apache-2.0
//
// One plan from options to report: find the model, decide what nobody said, predict, judge.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "ledger/ledger.h"
#include "model/config.h"
#include "model/recipe.h"
#include "plan_options.h"
#include "predict/predict.h"
#include "report/plan_report.h"
#include "verdict.h"

namespace headroom::cli {

struct LoadedModel {
  std::string name;
  std::string origin;  // for messages
  ModelConfig config;
};

// A config.json, a folder that holds one, a name in the Hugging Face cache or in the catalogue.
Result<LoadedModel> LoadModel(const std::string& model);

// The options with everything decided, and a line for each decision that the user did not make.
struct Decided {
  Recipe recipe;
  Platform platform;
  std::vector<std::string> assumptions;
  std::vector<std::string> warnings;
};

Decided Decide(const PlanOptions& options, const ModelConfig& config);

// PyTorch's GradScaler raises on float16 gradients (torch/amp/grad_scaler.py, 2.11.0), and so on
// every step of such a run.
Status CheckScaler(const Recipe& recipe);

// The recipe in a user's words: "batch 4 x 512 tokens", "adamw_torch_fused", ….
std::vector<std::string> RecipeParts(const Recipe& recipe, AttnImplementation attn);

// Unset when neither a GPU nor a size was given.
std::optional<Budget> BudgetOf(const PlanOptions& options);

struct Plan {
  Ledger ledger;
  PlanReport report;
};

Result<Plan> MakePlan(const PlanOptions& options);

// The model and what MakePlan would decide about it, without predicting anything.
struct ResolvedModel {
  std::string name;
  ModelConfig config;
  Task task = Task::kCausalLm;
  DType weights_dtype = DType::kFloat32;
};
Result<ResolvedModel> ResolveModel(const PlanOptions& options);

}  // namespace headroom::cli
