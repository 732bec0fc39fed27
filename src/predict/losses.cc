// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0: loss/loss_utils.py (ForSequenceClassificationLoss) and the classes that
// write it out; aten/src/ATen/native/Loss.cpp, PyTorch 2.11.0.
#include "predict/losses.h"

#include "predict/autograd.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

// One tensor of the input's shape for its gradient, from the input and the target.
Node::Function OneGradient(const SavedTensor& input, const SavedTensor& target) {
  return [input, target](Grads&) -> Grads {
    const Tensor values = input.Unpack();
    const Tensor targets = target.Unpack();
    return {EmptyLike(values)};
  };
}

// Both losses are in autocast's fp32 list.
Tensor MseLoss(const Tensor& given_input, const Tensor& given_target) {
  const Tensor target = AutocastToFloat(given_target);
  const Tensor input = AutocastToFloat(given_input);
  Runtime& runtime = input.runtime();
  GradRecorder record(runtime, "MseLossBackward0", {input, target});
  const SavedTensor saved_input = record.Save(input);
  const SavedTensor saved_target = record.Save(target);
  const OpScope op(runtime, "aten::mse_loss");
  const Tensor squares = EmptyLike(input);
  return record.Finish(Empty(runtime, {}, input.dtype()), OneGradient(saved_input, saved_target));
}

Tensor BceWithLogitsLoss(const Tensor& given_input, const Tensor& given_target) {
  const Tensor target = AutocastToFloat(given_target);
  const Tensor input = AutocastToFloat(given_input);
  Runtime& runtime = input.runtime();
  GradRecorder record(runtime, "BinaryCrossEntropyWithLogitsBackward0", {input, target});
  const SavedTensor saved_input = record.Save(input);
  const SavedTensor saved_target = record.Save(target);
  const OpScope op(runtime, "aten::binary_cross_entropy_with_logits");
  const Tensor log_sigmoid = EmptyLike(input);
  const Tensor losses = EmptyLike(input);
  return record.Finish(Empty(runtime, {}, input.dtype()), OneGradient(saved_input, saved_target));
}

}  // namespace

ProblemType ProblemTypeOf(const ModelConfig& config, const Recipe& recipe) {
  if (recipe.problem_type) return *recipe.problem_type;
  if (const auto named = config.MaybeString("problem_type")) {
    if (const auto type = ParseProblemType(*named)) return *type;
  }
  return config.MaybeInt("num_labels").value_or(2) == 1 ? ProblemType::kRegression
                                                        : ProblemType::kSingleLabel;
}

Tensor ClassifierLoss(const Tensor& logits, const Tensor& labels) {
  const Scoped kind(logits.runtime().kind, Kind::kLogitsLoss);
  if (!IsFloatingPoint(labels.dtype())) {
    return CrossEntropy(View(logits, {-1, logits.size(-1)}), View(labels, {-1}));
  }
  if (labels.rank() == 2) return BceWithLogitsLoss(logits, labels);
  return MseLoss(View(logits, {-1}), labels);
}

}  // namespace headroom::predict
