// SPDX-License-Identifier: Apache-2.0
//
// `headroom plan --device-map auto --gpus N`: a model for inference, spread over several cards.
#pragma once

#include "exit_code.h"
#include "plan_options.h"
#include "report/text.h"

namespace headroom::cli {

ExitCode RunPlacement(const PlanOptions& options, const TextStyle& style);

}  // namespace headroom::cli
