// SPDX-License-Identifier: Apache-2.0
//
// Trainer: runs a planned model over data, as Hugging Face's Trainer would, in an arena that was
// known before it began.
//
//   HEADROOM_ASSIGN_OR_RETURN(Trainer trainer, Trainer::Create(config, options, data));
//   trainer.plan();                                  // nothing is allocated yet
//   trainer.Start({.weights = "minilm/"});           // the arena, weights, or a checkpoint
//   HEADROOM_ASSIGN_OR_RETURN(TrainResult result, trainer.Run(observer));
//
// A window of gradient_accumulation_steps micro-batches makes one optimizer step; its loss is
// divided by the targets of the whole window, so that uneven micro-batches equal one large batch.
//
// On a device the next step is started before the last one's loss is read (step_runner.h), but
// where an evaluation, a checkpoint or the end stands between: reports are those of the CPU.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/budget.h"
#include "engine/checkpoint.h"
#include "engine/data/batches.h"
#include "engine/data/dataset.h"
#include "engine/data/prefetcher.h"
#include "engine/step_set.h"
#include "engine/train_options.h"

namespace headroom::engine {

struct RunningStep;
class StepRunner;

struct TrainData {
  Dataset train;
  Dataset evaluation;  // none: no evaluation
  int32_t pad_id = 0;
  int32_t end_id = -1;  // ends what is decoded; -1: nothing does
  Masking masking;      // of masked language models
};

struct StepReport {
  int64_t step = 0;  // optimizer steps, this one included
  double epoch = 0;
  double loss = 0;  // mean over the window's targets
  double learning_rate = 0;
  double grad_norm = 0;  // before clipping
  bool clipped = false;
  bool skipped = false;  // fp16: the gradients were not finite
  float loss_scale = 1;
  int64_t samples = 0;
  int64_t tokens = 0;  // that are no padding, of encoder and decoder
  double seconds = 0;
};

struct EvalReport {
  int64_t step = 0;
  double loss = 0;                 // mean over all targets
  std::optional<double> accuracy;  // of classifiers
  int64_t samples = 0;
  double seconds = 0;
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void OnStep(const StepReport&) {}
  virtual void OnEvaluate(const EvalReport&) {}
  virtual void OnSave(const std::filesystem::path&) {}
  // Asked after each step; true saves a checkpoint and ends the run. On a device the next step may
  // be started by then: it is finished and reported first.
  virtual bool ShouldStop() { return false; }
};

struct TrainResult {
  int64_t steps = 0;  // in all, those before a checkpoint included
  double epochs = 0;
  double train_runtime = 0;  // seconds, of this process
  double train_samples_per_second = 0;
  double train_tokens_per_second = 0;
  double train_steps_per_second = 0;
  double train_loss = 0;  // mean over steps
  std::optional<EvalReport> evaluation;
  double clipped_share = 0;
  int64_t skipped_steps = 0;
  double waiting_share = 0;  // of the time, for data
  bool interrupted = false;
  std::filesystem::path saved;  // the last checkpoint or model; empty when none
};

class Trainer {
 public:
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  ~Trainer();

  // Plans. Fails on models and recipes the engine does not have, on data longer than the model's
  // positions, on tokens and classes that the model has not, on no data.
  static Result<Trainer> Create(const ModelConfig& config, TrainOptions options, TrainData data);

  // Plans anew what the cheapest changes fit into the budget, where any do. The data stays.
  Result<BudgetAnswer> KeepBudget(Bytes budget);

  const StepSet& plan() const { return *steps_; }
  int64_t max_steps() const { return max_steps_; }
  const TrainOptions& options() const { return options_; }
  const std::vector<BatchShape>& shapes() const { return shapes_; }

  struct Origin {
    std::filesystem::path weights = {};     // a safetensors file or folder; empty: initialised
    std::filesystem::path checkpoint = {};  // resumed; goes before `weights`
    ModelFiles files = {};                  // saved beside the weights
    Device* device = nullptr;               // null: the CPU
  };
  // Allocates the arena and fills the weights.
  Status Start(const Origin& origin);

  // Trains from where it stands to the last step. Fails when the loss is not a number (naming the
  // first tensor that is not), or when a file cannot be written.
  Result<TrainResult> Run(TrainObserver& observer);

  // Brings what the device has changed into the host's arena.
  void CopyToHost() const;

  Result<EvalReport> Evaluate();

  // What a language model writes for the first `options().samples` examples of the validation data
  // (of the training data where there is none): the source, or the first half of a text.
  struct Sample {
    std::vector<int32_t> given;
    std::vector<int32_t> expected;
    std::vector<int32_t> written;
  };
  std::vector<Sample> Samples() const;
  const StepSet& steps() const { return *steps_; }
  // Parameters that a checkpoint lacked and that were initialised.
  const std::vector<std::string>& newly_initialised() const { return newly_initialised_; }
  // One line where a resumed run multiplies matrices by other algorithms than before.
  const std::optional<std::string>& other_algorithms() const { return other_algorithms_; }

 private:
  // Of this process.
  struct Totals {
    int64_t first_step = 0;
    int64_t samples = 0;
    int64_t tokens = 0;
    void Add(const StepReport& report) {
      samples += report.samples;
      tokens += report.tokens;
    }
  };

  Trainer();

  Status Plan();
  BatchOptions StreamOptions(bool training) const;
  Schedule ScheduleOf() const;
  // Of the step of this number, the first being 1.
  StepScalars Scalars(int64_t step) const;
  Status FillWeights();
  void ReadWindow(Prefetcher& source, std::vector<Batch>& window) const;
  // The next step to finish: its report, and the trainer's state behind it.
  Result<StepReport> FinishStep(const RunningStep& step);
  Status UpdateScale(const RunningStep& step, bool skipped);
  // Whether the step behind this one may be started before this one is finished.
  bool MayRunAhead(int64_t step) const;
  TrainResult ResultOf(const Totals& totals, double seconds) const;
  Status FinishRun(TrainObserver& observer, Position position, TrainResult& result);
  Status Save(TrainObserver& observer, Position position, TrainResult& result);
  bool IsDue(int64_t every, int64_t step) const;

  ModelConfig config_ = *ModelConfig::Default("bert");
  TrainOptions options_;
  std::unique_ptr<TrainData> data_;
  std::vector<BatchShape> shapes_;
  std::unique_ptr<StepSet> steps_;
  Origin origin_;
  TrainerState state_;
  int64_t max_steps_ = 0;
  int64_t steps_per_epoch_ = 0;
  std::unique_ptr<StepRunner> runner_;  // from Start() on
  std::chrono::steady_clock::time_point last_finished_;
  std::vector<std::string> newly_initialised_;
  std::optional<std::string> other_algorithms_;
};

}  // namespace headroom::engine
