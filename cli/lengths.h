// SPDX-License-Identifier: Apache-2.0
//
// `headroom plan --lengths FILE`: a run over batches of different lengths.
#pragma once

#include "exit_code.h"
#include "plan_options.h"
#include "report/text.h"

namespace headroom::cli {

// Plays the batches in the file's order, under the device's memory when one was named, and the same
// batches padded and sorted. On a terminal it tells on stderr how far it is; Ctrl-C reports what
// was played.
ExitCode RunLengths(const PlanOptions& options, const TextStyle& style);

}  // namespace headroom::cli
