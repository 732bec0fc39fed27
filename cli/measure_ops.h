// SPDX-License-Identifier: Apache-2.0
//
// `headroom ops --measure`: the native engine runs the recipe's step here, op by op.
#pragma once

#include <optional>

#include "device.h"
#include "exit_code.h"
#include "plan_options.h"
#include "report/text.h"

namespace headroom::cli {

// Measures and prints. Without `device` on the GPU where there is one, else on the CPU, as train
// does.
ExitCode RunMeasuredOps(const PlanOptions& options, std::optional<DeviceName> device,
                        const TextStyle& style);

}  // namespace headroom::cli
