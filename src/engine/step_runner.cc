// SPDX-License-Identifier: Apache-2.0
#include "engine/step_runner.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "engine/find_bad_tensor.h"

namespace headroom::engine {

using graph::Phase;
using graph::Role;

Result<StepRunner> StepRunner::Create(const StepSet& steps, Device* device, int32_t pad_id,
                                      bool scaled) {
  StepRunner runner;
  runner.steps_ = &steps;
  runner.device_ = device;
  runner.pad_id_ = pad_id;
  runner.scaled_ = scaled;
  runner.norm_ = steps.executor().graph().Find(Role::kBuffer, "grad_norm");
  if (device == nullptr) return runner;
  HEADROOM_ASSIGN_OR_RETURN(runner.staging_, Staging::Create(steps, *device));
  return runner;
}

Status StepRunner::Start(RunningStep& step) {
  step.start = std::chrono::steady_clock::now();
  int64_t targets = 0;
  for (const Batch& batch : step.window) targets += batch.targets;
  step.scalars.targets = static_cast<float>(std::max<int64_t>(targets, 1));
  step.scalars.halt = runs_ahead();
  const Executor& executor = steps_->executor();
  const graph::TensorId loss = steps_->model().loss;
  *executor.View(loss).As<float>() = 0;
  if (device_ != nullptr) steps_->OnDevice(executor).Zero(loss);
  for (size_t i = 0; i < step.window.size(); ++i) {
    step.scalars.micro_step = static_cast<int32_t>(i);
    HEADROOM_RETURN_IF_ERROR(RunMicroStep(step.window[i], step.scalars));
  }
  RunOptimizer(step.window.back(), step.scalars);
  if (device_ != nullptr) staging_->DownloadResult(loss, norm_, steps_->OnDevice(executor));
  return {};
}

Result<StepResult> StepRunner::Finish(const RunningStep& step) {
  StepResult result;
  if (device_ != nullptr) {
    HEADROOM_ASSIGN_OR_RETURN(result, staging_->ReadResult());
  } else {
    result = ResultInArena();
  }
  if (scaled_) return result;
  if (!std::isfinite(result.loss)) {
    return BadLoss(result.loss, step.scalars.step, FirstBad(step));
  }
  if (result.not_finite > 0) return BadGradients(result.not_finite, step).error();
  return result;
}

StepResult StepRunner::ResultInArena() const {
  const Executor& executor = steps_->executor();
  const float* norm = executor.View(norm_).As<float>();
  return {.loss = *executor.View(steps_->model().loss).As<float>(),
          .squares = norm[0],
          .not_finite = norm[1]};
}

Status StepRunner::RunMicroStep(const Batch& batch, const StepScalars& scalars) {
  const Executor& executor = steps_->train(batch);
  FillInputs(steps_->train_model(batch), executor, batch, pad_id_);
  if (device_ != nullptr) {
    DeviceExecutor& on_device = steps_->OnDevice(executor);
    HEADROOM_RETURN_IF_ERROR(staging_->Upload(executor, on_device));
    on_device.Run(Section::kMicroStep, scalars);
    return {};
  }
  executor.Run(Phase::kForward, scalars);
  // Where the loss is gone, so is everything behind it. In float16 an overflow skips the step,
  // wherever it happened.
  const float loss = *executor.View(steps_->train_model(batch).loss).As<float>();
  if (!scaled_ && !std::isfinite(loss)) {
    return BadLoss(loss, scalars.step, FirstBad({&batch, 1}, scalars));
  }
  executor.Run(Phase::kBackward, scalars);
  return {};
}

// On the list that has made the gradients: where one micro-step makes a step they lie in its part
// of the arena.
void StepRunner::RunOptimizer(const Batch& batch, const StepScalars& scalars) {
  const Executor& executor = steps_->train(batch);
  if (device_ == nullptr) return executor.Run(Phase::kOptimizer, scalars);
  steps_->OnDevice(executor).Run(Section::kOptimizer, scalars);
}

Status StepRunner::Evaluate(const Batch& batch, const StepScalars& scalars, bool wants_logits) {
  const Executor& executor = steps_->eval(batch);
  const ModelGraph& model = steps_->eval_model(batch);
  FillInputs(model, executor, batch, pad_id_);
  *executor.View(model.loss).As<float>() = 0;
  if (device_ == nullptr) {
    executor.Run(Phase::kForward, scalars);
    return {};
  }
  DeviceExecutor& on_device = steps_->OnDevice(executor);
  HEADROOM_RETURN_IF_ERROR(staging_->Upload(executor, on_device));
  on_device.Zero(model.loss);
  on_device.Run(Section::kForward, scalars);
  on_device.Download(model.loss, executor.View(model.loss).data);
  if (wants_logits) on_device.Download(model.logits, executor.View(model.logits).data);
  return {};
}

void StepRunner::CopyToHost() const {
  if (device_ == nullptr) return;
  steps_->OnDevice(steps_->executor())
      .DownloadArena(steps_->arena().data(), steps_->largest().plan.shared);
}

std::string StepRunner::FirstBad(std::span<const Batch> batches, StepScalars scalars) const {
  CopyToHost();
  for (const Batch& batch : batches) {
    const Executor& executor = steps_->train(batch);
    // The arena may hold the next step's, and a sum that is lost.
    FillInputs(steps_->train_model(batch), executor, batch, pad_id_);
    *executor.View(steps_->train_model(batch).loss).As<float>() = 0;
    if (auto bad = FirstBadTensor(executor, scalars)) return *bad;
    ++scalars.micro_step;
  }
  return "the loss itself";
}

std::string StepRunner::FirstBad(const RunningStep& step) const {
  StepScalars scalars = step.scalars;
  scalars.micro_step = 0;
  return FirstBad(step.window, scalars);
}

Error StepRunner::BadLoss(float loss, int64_t step, const std::string& bad) {
  return Error::Internal(Format(
      "step {}: the loss is {}; the first tensor that is not finite is {}. Lower the learning rate "
      "or clip with --max-grad-norm",
      step, std::abs(loss), bad));
}

Status StepRunner::BadGradients(float count, const RunningStep& step) {
  const Executor& executor = steps_->train(step.window.back());
  // On a device the next step may have written over them.
  if (device_ != nullptr) {
    StepScalars scalars = step.scalars;
    for (size_t i = 0; i < step.window.size(); ++i) {
      scalars.micro_step = static_cast<int32_t>(i);
      HEADROOM_RETURN_IF_ERROR(RunMicroStep(step.window[i], scalars));
    }
    for (const graph::Parameter& parameter : executor.graph().parameters()) {
      steps_->OnDevice(executor).Download(parameter.gradient,
                                          executor.View(parameter.gradient).data);
    }
  }
  return Error::Internal(Format(
      "step {}: {} values of the gradients are not finite, the first in {}: lower the learning "
      "rate, or clip with --max-grad-norm",
      step.scalars.step, count, FirstBadGradient(executor)));
}

}  // namespace headroom::engine
