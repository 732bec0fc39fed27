// SPDX-License-Identifier: Apache-2.0
//
// StepProfiler: how long each op of a training step takes, on a device or on the CPU, with random
// weights and a batch of random tokens.
//
//   HEADROOM_ASSIGN_OR_RETURN(StepProfiler profiler, StepProfiler::Plan(config, options));
//   HEADROOM_RETURN_IF_ERROR(profiler.Start(device));    // the one allocation
//   profiler.Run(keep_going)->seconds[i]                 // of profiler.graph().ops()[i]
//
// A run executes all ops once, one after the other, each with its own time. With gradient
// accumulation a second micro-step, which adds to gradients, stands for all that follow the first.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/data/batches.h"
#include "engine/device.h"
#include "engine/step_set.h"
#include "engine/train_options.h"
#include "model/config.h"

namespace headroom::engine {

struct StepProfile {
  // Of each op of the graph in one optimizer step, all micro-steps together: medians of `runs`.
  std::vector<double> seconds;
  // Of the whole step as training runs it on a device, in captured graphs: the median of as many.
  std::optional<double> replayed_seconds = std::nullopt;
  int runs = 0;
};

class StepProfiler {
 public:
  // Asked while it runs: "measuring", the run, of so many. False ends the measurement.
  using KeepGoing = std::function<bool(std::string_view what, int run, int runs)>;

  // Fails as PlanTrainingStep does. REQUIRES: options.sequence_length is given, and for seq2seq
  // options.target_sequence_length.
  static Result<StepProfiler> Plan(const ModelConfig& config, const TrainOptions& options);

  const NativeStep& step() const { return steps_->largest(); }
  const graph::Graph& graph() const { return step().graph(); }

  // Allocates, and fills weights and inputs from options.seed. Without a device it is the CPU that
  // runs. REQUIRES: called once; the device outlives this.
  Status Start(Device* device);
  // Warms up, then measures: seven runs, or as many as half a minute has room for, three at least.
  // Nothing when `keep_going` ended it. REQUIRES: Start() succeeded.
  Result<std::optional<StepProfile>> Run(const KeepGoing& keep_going);

 private:
  void FillBatch();
  StepScalars Scalars() const;
  bool RunOnCpu(int32_t micro_step, const std::function<bool()>& keep_going,
                std::vector<double>& seconds);
  bool ProfileRun(const std::function<bool()>& keep_going, std::vector<double>& seconds);
  Status Replay();

  ModelConfig config_;
  TrainOptions options_;
  std::unique_ptr<StepSet> steps_;
  Device* device_ = nullptr;
  float targets_ = 1;
  int64_t updates_ = 0;
};

}  // namespace headroom::engine
