// SPDX-License-Identifier: Apache-2.0
//
// Looking into tensors after a pass: what went wrong first, and what a classifier answered.
#pragma once

#include <cstdint>
#include <string>

#include "engine/data/batches.h"
#include "engine/executor.h"
#include "engine/models/model_graph.h"

namespace headroom::engine {

// Runs the forward pass once more, op by op, and names the first tensor that holds a value that is
// not finite: "bert.encoder.layer.3.output (linear)"; a weight before all of them.
std::string FirstBadTensor(const Executor& executor, const StepScalars& scalars);

// Of the gradients as they lie there.
std::string FirstBadGradient(const Executor& executor);

// Rows of the kept logits whose largest is the label.
int64_t CountCorrect(const Executor& executor, const ModelGraph& model, const Batch& batch);

}  // namespace headroom::engine
