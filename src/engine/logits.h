// SPDX-License-Identifier: Apache-2.0
//
// What logits say.
#pragma once

#include <cstdint>

#include "engine/data/batches.h"
#include "engine/executor.h"
#include "engine/models/model_graph.h"
#include "engine/op_call.h"

namespace headroom::engine {

// The column of the row's largest value; of equal ones the first.
int64_t Likeliest(const TensorView& logits, int64_t row);

// Rows of the kept logits whose largest is the label.
int64_t CountCorrect(const Executor& executor, const ModelGraph& model, const Batch& batch);

}  // namespace headroom::engine
