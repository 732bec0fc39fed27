// SPDX-License-Identifier: Apache-2.0
//
// The loss of a classifier, by the problem type that transformers infers. The labels tell it apart:
//
//   int64 [batch]                 classes: CrossEntropyLoss
//   fp32 [batch]                  one number a sample: MSELoss of the squeezed logits
//   fp32 [batch, num_labels]      multi-label: BCEWithLogitsLoss
#pragma once

#include "model/config.h"
#include "model/recipe.h"
#include "predict/tensor.h"

namespace headroom::predict {

// What the recipe or the config names, else what num_labels says.
ProblemType ProblemTypeOf(const ModelConfig& config, const Recipe& recipe);

// The loss of `logits` [batch, …, classes]; a scalar.
Tensor ClassifierLoss(const Tensor& logits, const Tensor& labels);

}  // namespace headroom::predict
