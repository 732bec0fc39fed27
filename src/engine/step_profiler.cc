// SPDX-License-Identifier: Apache-2.0
#include "engine/step_profiler.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/data/dataset.h"
#include "engine/initialise.h"

namespace headroom::engine {
namespace {

using Clock = std::chrono::steady_clock;
using graph::Phase;

constexpr int kWarmUps = 2;
constexpr int kRuns = 7;
constexpr int kLeastRuns = 3;
// After so long no further run begins, beyond those there have to be.
constexpr double kSeconds = 30;
// Steps behind each other, waited for once: what waiting costs is not the step's.
constexpr int kReplayedSteps = 5;
// Micro-steps that a device has to replay before the ops that are timed: meanwhile the host starts
// those, so that they do not wait for it.
constexpr int kReplaysAhead = 3;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Of each column.
std::vector<double> Medians(const std::vector<std::vector<double>>& runs) {
  std::vector<double> medians;
  for (size_t i = 0; i < runs.front().size(); ++i) {
    std::vector<double> values;
    for (const std::vector<double>& run : runs) values.push_back(run[i]);
    medians.push_back(Median(std::move(values)));
  }
  return medians;
}

}  // namespace

Result<StepProfiler> StepProfiler::Plan(const ModelConfig& config, const TrainOptions& options) {
  StepProfiler profiler;
  profiler.config_ = config;
  profiler.options_ = options;
  HEADROOM_ASSIGN_OR_RETURN(
      StepSet steps,
      StepSet::Plan(config, options, {{options.sequence_length, options.target_sequence_length}},
                    false));
  profiler.steps_ = std::make_unique<StepSet>(std::move(steps));
  return profiler;
}

Status StepProfiler::Start(Device* device) {
  device_ = device;
  HEADROOM_RETURN_IF_ERROR(steps_->Allocate(device));
  const Executor& executor = steps_->executor();
  InitialiseWeights(config_, executor, options_.seed);
  FillBatch();
  if (device == nullptr) return {};
  DeviceExecutor& on_device = steps_->OnDevice(executor);
  on_device.UploadArena(steps_->arena().data(), step().plan.shared);
  UploadInputs(executor, on_device);
  return device->Synchronize();
}

// One batch of full rows.
void StepProfiler::FillBatch() {
  const int64_t vocabulary = config_.Int("vocab_size");
  const Dataset data = SyntheticDataset({.rows = options_.per_device_train_batch_size,
                                         .sequence = options_.sequence_length,
                                         .decoder_sequence = options_.target_sequence_length,
                                         .vocabulary = vocabulary,
                                         .task = options_.task,
                                         .seed = options_.seed});
  BatchOptions batches{.task = options_.task,
                       .batch_size = options_.per_device_train_batch_size,
                       .seed = options_.seed,
                       .shuffle = false,
                       .buckets = 1,
                       .multiple = 1,
                       .sequence = options_.sequence_length,
                       .decoder_sequence = options_.target_sequence_length};
  if (options_.task == Task::kMaskedLm) {
    batches.masking = {.probability = 0.15F,
                       .mask_id = static_cast<int32_t>(vocabulary - 1),
                       .vocabulary = static_cast<int32_t>(vocabulary)};
  }
  BatchStream stream(data, std::move(batches));
  Batch batch;
  stream.Next(batch);
  FillInputs(steps_->model(), steps_->executor(), batch, 0);
  const int64_t window = options_.gradient_accumulation_steps;
  targets_ = static_cast<float>(std::max<int64_t>(batch.targets * window, 1));
}

StepScalars StepProfiler::Scalars() const {
  StepScalars scalars;
  scalars.seed = options_.seed;
  scalars.step = updates_ + 1;
  // A step whose gradients overflow changes nothing, and is faster: a scale at which none do.
  scalars.loss_scale = options_.precision == Precision::kFp16 ? 1024.0F : 1.0F;
  scalars.targets = targets_;
  scalars.learning_rate = static_cast<float>(options_.learning_rate);
  scalars.max_grad_norm = static_cast<float>(options_.max_grad_norm);
  scalars.beta1 = static_cast<float>(options_.adam_beta1);
  scalars.beta2 = static_cast<float>(options_.adam_beta2);
  scalars.adam_eps = static_cast<float>(options_.adam_epsilon);
  return scalars;
}

bool StepProfiler::RunOnCpu(int32_t micro_step, const std::function<bool()>& keep_going,
                            std::vector<double>& seconds) {
  const Executor& executor = steps_->executor();
  StepScalars scalars = Scalars();
  scalars.micro_step = micro_step;
  seconds.clear();
  for (size_t i = 0; i < graph().ops().size(); ++i) {
    if (!keep_going()) return false;
    const Clock::time_point start = Clock::now();
    executor.RunOps(i, i + 1, scalars);
    seconds.push_back(SecondsSince(start));
  }
  return true;
}

// The seconds of each op in a window. False when it was ended.
bool StepProfiler::ProfileRun(const std::function<bool()>& keep_going,
                              std::vector<double>& seconds) {
  const int64_t window = options_.gradient_accumulation_steps;
  seconds.assign(graph().ops().size(), 0);
  for (int32_t micro_step = 0; micro_step < std::min<int64_t>(window, 2); ++micro_step) {
    if (!keep_going()) return false;
    std::vector<double> times;
    if (device_ == nullptr) {
      if (!RunOnCpu(micro_step, keep_going, times)) return false;
    } else {
      StepScalars scalars = Scalars();
      scalars.micro_step = micro_step;
      DeviceExecutor& executor = steps_->OnDevice(steps_->executor());
      for (int i = 0; i < kReplaysAhead; ++i) executor.Run(Section::kMicroStep, scalars);
      times = executor.Profile(scalars);
    }
    ++updates_;
    for (size_t i = 0; i < seconds.size(); ++i) {
      const bool once = graph().ops()[i].phase == Phase::kOptimizer;
      if (micro_step == 0) seconds[i] += times[i];
      if (micro_step == 1 && !once) seconds[i] += times[i] * static_cast<double>(window - 1);
    }
  }
  return true;
}

// Starts kReplayedSteps steps and waits for them.
Status StepProfiler::Replay() {
  DeviceExecutor& executor = steps_->OnDevice(steps_->executor());
  for (int i = 0; i < kReplayedSteps; ++i) {
    StepScalars scalars = Scalars();
    executor.Zero(steps_->model().loss);
    for (int64_t micro = 0; micro < options_.gradient_accumulation_steps; ++micro) {
      scalars.micro_step = static_cast<int32_t>(micro);
      executor.Run(Section::kMicroStep, scalars);
    }
    executor.Run(Section::kOptimizer, scalars);
    ++updates_;
  }
  return device_->Synchronize();
}

Result<std::optional<StepProfile>> StepProfiler::Run(const KeepGoing& keep_going) {
  const Clock::time_point start = Clock::now();
  std::vector<std::vector<double>> runs;
  std::vector<double> replays;
  for (int i = 0; i < kWarmUps + kRuns; ++i) {
    const bool warm_up = i < kWarmUps;
    const int run = warm_up ? i + 1 : i - kWarmUps + 1;
    if (run > (warm_up ? 1 : kLeastRuns) && SecondsSince(start) > kSeconds) continue;
    const auto goes_on = [&] {
      return keep_going(warm_up ? "warming up" : "measuring", run, warm_up ? kWarmUps : kRuns);
    };
    std::vector<double> seconds;
    if (!ProfileRun(goes_on, seconds)) return std::optional<StepProfile>();
    if (!warm_up) runs.push_back(std::move(seconds));
    if (device_ == nullptr) continue;
    const Clock::time_point replay = Clock::now();
    HEADROOM_RETURN_IF_ERROR(Replay());
    if (!warm_up) replays.push_back(SecondsSince(replay) / kReplayedSteps);
  }
  StepProfile profile{.seconds = Medians(runs), .runs = static_cast<int>(runs.size())};
  if (device_ != nullptr) profile.replayed_seconds = Median(std::move(replays));
  return std::optional(std::move(profile));
}

}  // namespace headroom::engine
