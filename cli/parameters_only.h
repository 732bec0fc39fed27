// SPDX-License-Identifier: Apache-2.0
//
// Plans for models without a shape of their own: from the weights' files alone.
#pragma once

#include <optional>

#include "base/result.h"
#include "plan_options.h"
#include "report/parameters_report.h"

namespace headroom::cli {

// The report when MODEL is a safetensors file or index, or a folder (or a name in the Hugging Face
// cache) that holds one and no config.json of a model type that Predict knows. Null when MODEL is
// planned in full, or has no such file.
Result<std::optional<ParametersReport>> PlanParameters(const PlanOptions& options);

}  // namespace headroom::cli
