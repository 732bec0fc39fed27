// SPDX-License-Identifier: Apache-2.0
//
// The report of a native plan: the same shape as that of a predicted run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/native_step.h"
#include "engine/train_options.h"
#include "ledger/ledger.h"
#include "make_plan.h"
#include "report/plan_report.h"

namespace headroom::cli {

// What the native engine has of a recipe. The first that it has not is an error (kUnsupported),
// that says to leave out `flag`, which asked for the engine.
Result<engine::TrainOptions> NativeRecipe(const Recipe& recipe, std::string_view flag);
// The recipe in a user's words: "batch 4 x 512 tokens", "adamw_torch", ….
std::vector<std::string> NativeParts(const engine::TrainOptions& options);
// Those of decided.assumptions that do not concern PyTorch's process alone.
std::vector<std::string> NativeAssumptions(const Decided& decided);
// Elements of all of them.
int64_t ParametersOf(const graph::Graph& graph);

// `options` as they were planned; `assumptions` come first among those of the report.
Plan MakeNativeReport(const std::string& model, const engine::NativeStep& step,
                      const engine::TrainOptions& options, Bytes arena,
                      std::vector<std::string> assumptions);

// `plan --engine native`: the recipe of the options, where the native engine has all of it. Fails
// (kUnsupported) naming the first part that it has not.
Result<Plan> MakeNativePlan(const PlanOptions& options);

}  // namespace headroom::cli
