// SPDX-License-Identifier: Apache-2.0
//
// Looking into tensors after a pass: what went wrong first.
#pragma once

#include <optional>
#include <string>

#include "engine/executor.h"

namespace headroom::engine {

// Runs the forward pass once more, op by op, and names the first tensor that holds a value that is
// not finite: "linear of bert.encoder.layer.3.output"; a weight before all of them. Nothing where
// all are finite.
std::optional<std::string> FirstBadTensor(const Executor& executor, const StepScalars& scalars);

// Of the gradients as they lie there.
std::string FirstBadGradient(const Executor& executor);

}  // namespace headroom::engine
