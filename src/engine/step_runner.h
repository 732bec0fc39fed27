// SPDX-License-Identifier: Apache-2.0
//
// StepRunner: runs the steps of a plan where the run is to be, on the CPU or on a device.
//
//   runner.Start(first);          // CPU: done; device: started
//   runner.Start(second);         // device: the host may be a step ahead
//   runner.Finish(first);         // its loss
//
// On a device the host reads a step's loss when the next step is started, so that the device never
// waits for the host between steps. With a loss scale it cannot: whether a step was skipped decides
// the next one's scale, schedule and bias corrections. A step that is not finite ends the run as on
// the CPU: StepScalars.halt keeps the weights as that step saw them, and what the next step has
// written over is computed again.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/data/batches.h"
#include "engine/device.h"
#include "engine/staging.h"
#include "engine/step_set.h"

namespace headroom::engine {

// A step that was started.
struct RunningStep {
  StepScalars scalars;
  std::vector<Batch> window;  // a micro-step each
  std::chrono::steady_clock::time_point start;
};

class StepRunner {
 public:
  // `scaled`: the loss has a scale, and what is not finite skips a step in place of ending the run.
  // With a device allocates what copies need. REQUIRES: the steps are allocated, on the device
  // where there is one, and both outlive this.
  static Result<StepRunner> Create(const StepSet& steps, Device* device, int32_t pad_id,
                                   bool scaled);

  // Whether a step may be started before the last one is finished.
  bool runs_ahead() const { return device_ != nullptr && !scaled_; }

  // Sets the scalars' targets, micro-step and halt, and starts the step; on the CPU it is done
  // then. Fails on the CPU when the loss is not finite. REQUIRES: all steps are finished, or all
  // but the last where it runs ahead.
  Status Start(RunningStep& step);
  // Of the oldest step that is not finished. Fails when its loss or its gradients are not finite,
  // naming the first tensor that is not.
  Result<StepResult> Finish(const RunningStep& step);

  // The forward pass of an evaluation; the loss starts at 0. The loss, and the logits where they
  // are wanted, are in the host's arena then. REQUIRES: all steps are finished.
  Status Evaluate(const Batch& batch, const StepScalars& scalars, bool wants_logits);

  // Brings what the device has changed into the host's arena.
  void CopyToHost() const;

  // The first tensor of the step's forward passes that is not finite.
  std::string FirstBad(const RunningStep& step) const;

 private:
  Status RunMicroStep(const Batch& batch, const StepScalars& scalars);
  void RunOptimizer(const Batch& batch, const StepScalars& scalars);
  StepResult ResultInArena() const;
  // Of these micro-batches, of which scalars.micro_step is the first's.
  std::string FirstBad(std::span<const Batch> batches, StepScalars scalars) const;
  static Error BadLoss(float loss, int64_t step, const std::string& bad);
  // An error, of these or of the device.
  Status BadGradients(float count, const RunningStep& step);

  const StepSet* steps_ = nullptr;
  Device* device_ = nullptr;
  int32_t pad_id_ = 0;
  bool scaled_ = false;
  graph::TensorId norm_ = graph::kNoTensor;
  std::optional<Staging> staging_;  // with a device
};

}  // namespace headroom::engine
