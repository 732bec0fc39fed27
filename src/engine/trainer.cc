// SPDX-License-Identifier: Apache-2.0
#include "engine/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "engine/decoder.h"
#include "engine/files/safetensors_file.h"
#include "engine/files/weights.h"
#include "engine/initialise.h"
#include "engine/logits.h"
#include "engine/step_runner.h"

namespace headroom::engine {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t TokensOf(const Batch& batch) {
  const auto sum = [](const std::vector<int32_t>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  };
  return sum(batch.lengths) + sum(batch.decoder_lengths);
}

bool IsClassifier(Task task) { return task == Task::kSequenceClassification; }

Status CheckData(const ModelConfig& config, const TrainOptions& options, const Dataset& data,
                 const char* which) {
  if (data.size() == 0) return Error::BadInput(Format("the {} data has no examples", which));
  const Status status =
      CheckExamples(data, {.task = options.task,
                           .vocabulary = config.Int("vocab_size"),
                           .classes = IsClassifier(options.task) ? config.Int("num_labels") : 0,
                           .types = config.MaybeInt("type_vocab_size").value_or(0),
                           .sequence = options.sequence_length,
                           .decoder_sequence = options.target_sequence_length});
  if (!status.ok()) return status.error().In(Format("the {} data", which));
  return {};
}

}  // namespace

Trainer::Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

Result<Trainer> Trainer::Create(const ModelConfig& config, TrainOptions options, TrainData data) {
  Trainer trainer;
  trainer.config_ = config;
  HEADROOM_RETURN_IF_ERROR(CheckData(config, options, data.train, "training"));
  if (data.evaluation.size() > 0) {
    HEADROOM_RETURN_IF_ERROR(CheckData(config, options, data.evaluation, "validation"));
  }
  // One set of shapes serves both.
  if (options.sequence_length == 0) {
    options.sequence_length =
        std::max(data.train.LongestSequence(), data.evaluation.LongestSequence());
  }
  if (options.target_sequence_length == 0) {
    options.target_sequence_length =
        std::max(data.train.LongestDecoderSequence(), data.evaluation.LongestDecoderSequence());
  }
  trainer.options_ = std::move(options);
  trainer.data_ = std::make_unique<TrainData>(std::move(data));
  HEADROOM_RETURN_IF_ERROR(trainer.Plan());
  return trainer;
}

// What follows from the options.
Status Trainer::Plan() {
  const BatchStream stream(data_->train, StreamOptions(true));
  shapes_ = stream.shapes();
  HEADROOM_ASSIGN_OR_RETURN(
      StepSet steps, StepSet::Plan(config_, options_, shapes_, data_->evaluation.size() > 0));
  steps_ = std::make_unique<StepSet>(std::move(steps));
  const int64_t window = options_.gradient_accumulation_steps;
  steps_per_epoch_ = (stream.batches_per_epoch() + window - 1) / window;
  max_steps_ = options_.max_steps > 0
                   ? options_.max_steps
                   : static_cast<int64_t>(std::ceil(options_.num_train_epochs *
                                                    static_cast<double>(steps_per_epoch_)));
  return {};
}

Result<BudgetAnswer> Trainer::KeepBudget(Bytes budget) {
  HEADROOM_ASSIGN_OR_RETURN(BudgetAnswer answer, FitBudget(config_, options_, shapes_,
                                                           data_->evaluation.size() > 0, budget));
  if (answer.cheapest && !answer.cheapest->changes.empty()) {
    options_ = answer.cheapest->options;
    HEADROOM_RETURN_IF_ERROR(Plan());
  }
  return answer;
}

BatchOptions Trainer::StreamOptions(bool training) const {
  return {.task = options_.task,
          .batch_size = options_.per_device_train_batch_size,
          .seed = options_.seed,
          .shuffle = training,
          .group_by_length = training && options_.group_by_length,
          .sequence = options_.sequence_length,
          .decoder_sequence = options_.target_sequence_length,
          .pad_id = data_->pad_id,
          .masking = data_->masking};
}

Schedule Trainer::ScheduleOf() const {
  const double warmup = options_.warmup_steps;
  const double steps = warmup < 1 ? std::ceil(warmup * static_cast<double>(max_steps_)) : warmup;
  const std::optional<int64_t> d_model =
      config_.Has("hidden_size") ? config_.MaybeInt("hidden_size") : config_.MaybeInt("d_model");
  return {.kind = options_.lr_scheduler_type,
          .learning_rate = options_.learning_rate,
          .warmup_steps = static_cast<int64_t>(steps),
          .max_steps = max_steps_,
          .d_model = d_model.value_or(1)};
}

Status Trainer::Start(const Origin& origin) {
  origin_ = origin;
  if (!origin.checkpoint.empty()) {
    other_algorithms_ = TakeAlgorithms(origin.checkpoint, origin.device);
  }
  HEADROOM_RETURN_IF_ERROR(steps_->Allocate(origin.device));
  const Executor& executor = steps_->executor();
  if (!origin.checkpoint.empty()) {
    HEADROOM_ASSIGN_OR_RETURN(state_, LoadCheckpoint(origin.checkpoint, steps_->model(), executor,
                                                     RecipeOf(options_, max_steps_)));
    const BatchStream stream(data_->train, StreamOptions(true));
    if (state_.position.batch >= stream.batches_per_epoch()) {
      return Error::BadInput(
          Format("{} stands at batch {} of its epoch, and this data makes {}: resume with the data "
                 "of before",
                 origin.checkpoint.string(), state_.position.batch, stream.batches_per_epoch()));
    }
  } else {
    HEADROOM_RETURN_IF_ERROR(FillWeights());
  }
  if (origin.device != nullptr) {
    steps_->OnDevice(executor).UploadArena(steps_->arena().data(), steps_->largest().plan.shared);
  }
  HEADROOM_ASSIGN_OR_RETURN(StepRunner runner,
                            StepRunner::Create(*steps_, origin.device, data_->pad_id,
                                               options_.precision == Precision::kFp16));
  runner_ = std::make_unique<StepRunner>(std::move(runner));
  return {};
}

Status Trainer::FillWeights() {
  const Executor& executor = steps_->executor();
  InitialiseWeights(config_, executor, options_.seed);
  if (!origin_.weights.empty()) {
    HEADROOM_ASSIGN_OR_RETURN(const SafetensorsReader reader,
                              SafetensorsReader::Open(origin_.weights));
    HEADROOM_ASSIGN_OR_RETURN(LoadedWeights loaded, LoadWeights(reader, steps_->model(), executor));
    newly_initialised_ = std::move(loaded.initialised);
  }
  state_.recipe = RecipeOf(options_, max_steps_);
  return {};
}

StepScalars Trainer::Scalars(int64_t step) const {
  const int64_t updates = step - state_.skipped_steps;
  StepScalars scalars;
  scalars.seed = options_.seed;
  scalars.step = step;
  scalars.skipped = state_.skipped_steps;
  scalars.loss_scale = options_.precision == Precision::kFp16 ? state_.scaler.scale : 1.0F;
  scalars.learning_rate = static_cast<float>(ScheduleOf().At(updates));
  scalars.max_grad_norm = static_cast<float>(options_.max_grad_norm);
  scalars.beta1 = static_cast<float>(options_.adam_beta1);
  scalars.beta2 = static_cast<float>(options_.adam_beta2);
  scalars.adam_eps = static_cast<float>(options_.adam_epsilon);
  return scalars;
}

// A window ends with its epoch, as Trainer's does.
void Trainer::ReadWindow(Prefetcher& source, std::vector<Batch>& window) const {
  window.resize(static_cast<size_t>(options_.gradient_accumulation_steps));
  size_t count = 0;
  while (count < window.size()) {
    source.Next(window[count++]);
    if (source.position().epoch != window[count - 1].position.epoch) break;
  }
  window.resize(count);
}

Result<StepReport> Trainer::FinishStep(const RunningStep& step) {
  HEADROOM_ASSIGN_OR_RETURN(const StepResult result, runner_->Finish(step));
  const StepScalars& scalars = step.scalars;
  StepReport report;
  report.step = scalars.step;
  for (const Batch& batch : step.window) {
    report.samples += batch.rows;
    report.tokens += TokensOf(batch);
  }
  report.skipped = result.not_finite > 0;
  report.loss = static_cast<double>(result.loss) / static_cast<double>(scalars.targets);
  report.grad_norm = report.skipped ? std::nan("")
                                    : std::sqrt(static_cast<double>(result.squares)) /
                                          static_cast<double>(scalars.loss_scale);
  report.clipped =
      !report.skipped && options_.max_grad_norm > 0 && report.grad_norm > options_.max_grad_norm;
  report.loss_scale = scalars.loss_scale;
  report.learning_rate = static_cast<double>(scalars.learning_rate);
  // Of a step that was started before the last one's end, the time behind that.
  report.seconds = SecondsSince(std::max(step.start, last_finished_));
  last_finished_ = Clock::now();
  HEADROOM_RETURN_IF_ERROR(UpdateScale(step, report.skipped));
  ++state_.global_step;
  state_.loss_sum += report.loss;
  state_.clipped_steps += report.clipped ? 1 : 0;
  state_.skipped_steps += report.skipped ? 1 : 0;
  report.epoch = static_cast<double>(state_.global_step) / static_cast<double>(steps_per_epoch_);
  return report;
}

Status Trainer::UpdateScale(const RunningStep& step, bool skipped) {
  if (options_.precision != Precision::kFp16) return {};
  state_.scaler.Update(skipped);
  // Forty steps that overflowed one after the other: no scale will do.
  constexpr float kLeastScale = 0x1p-24F;
  if (state_.scaler.scale > kLeastScale) return {};
  return Error::Internal(Format(
      "step {}: gradients overflow at every loss scale; the first tensor that is not finite is {}. "
      "Lower the learning rate, or train in bf16",
      step.scalars.step, runner_->FirstBad(step)));
}

void Trainer::CopyToHost() const { runner_->CopyToHost(); }

bool Trainer::IsDue(int64_t every, int64_t step) const {
  return every > 0 && step % every == 0 && step < max_steps_;
}

bool Trainer::MayRunAhead(int64_t step) const {
  return runner_->runs_ahead() && step < max_steps_ && !IsDue(options_.eval_steps, step) &&
         !IsDue(options_.save_steps, step);
}

Status Trainer::Save(TrainObserver& observer, Position position, TrainResult& result) {
  if (options_.output_dir.empty()) return {};
  state_.position = position;
  CopyToHost();
  const std::filesystem::path folder =
      options_.output_dir / ("checkpoint-" + std::to_string(state_.global_step));
  HEADROOM_RETURN_IF_ERROR(SaveCheckpoint(folder, steps_->model(), steps_->executor(), state_,
                                          origin_.files, origin_.device));
  RemoveOldCheckpoints(options_.output_dir, options_.save_total_limit);
  result.saved = folder;
  observer.OnSave(folder);
  return {};
}

Result<EvalReport> Trainer::Evaluate() {
  const Clock::time_point start = Clock::now();
  EvalReport report;
  report.step = state_.global_step;
  BatchStream stream(data_->evaluation, StreamOptions(false));
  Batch batch;
  int64_t targets = 0;
  int64_t correct = 0;
  double loss = 0;
  StepScalars scalars = Scalars(state_.global_step + 1);
  scalars.training = false;
  for (int64_t i = 0; i < stream.batches_per_epoch(); ++i) {
    stream.Next(batch);
    const Executor& executor = steps_->eval(batch);
    const ModelGraph& model = steps_->eval_model(batch);
    HEADROOM_RETURN_IF_ERROR(runner_->Evaluate(batch, scalars, IsClassifier(options_.task)));
    loss += static_cast<double>(*executor.View(model.loss).As<float>());
    targets += batch.targets;
    report.samples += batch.rows;
    if (IsClassifier(options_.task)) correct += CountCorrect(executor, model, batch);
  }
  report.loss = loss / static_cast<double>(std::max<int64_t>(targets, 1));
  if (IsClassifier(options_.task)) {
    report.accuracy = static_cast<double>(correct) / static_cast<double>(report.samples);
  }
  report.seconds = SecondsSince(start);
  return report;
}

std::vector<Trainer::Sample> Trainer::Samples() const {
  const Dataset& data = data_->evaluation.size() > 0 ? data_->evaluation : data_->train;
  const bool both = options_.task == Task::kSeq2SeqLm;
  std::vector<Sample> samples;
  std::vector<std::vector<int32_t>> rows;
  DecodeOptions decode{.pad_id = data_->pad_id, .end_id = data_->end_id};
  for (int64_t i = 0; i < std::min(options_.samples, data.size()); ++i) {
    const Example& example = data[i];
    Sample sample;
    if (both) {
      decode.start_id = example.decoder_ids.front();
      sample.given = example.ids;
      sample.expected = example.labels;
    } else {
      const auto half = static_cast<std::ptrdiff_t>((example.ids.size() + 1) / 2);
      sample.given.assign(example.ids.begin(), example.ids.begin() + half);
      sample.expected.assign(example.ids.begin() + half, example.ids.end());
    }
    rows.push_back(sample.given);
    samples.push_back(std::move(sample));
  }
  CopyToHost();
  const auto written = GreedyDecode(steps_->decode_model(), steps_->decode(), rows, decode);
  for (size_t i = 0; i < samples.size(); ++i) samples[i].written = written[i];
  return samples;
}

Result<TrainResult> Trainer::Run(TrainObserver& observer) {
  const Clock::time_point start = Clock::now();
  BatchStream stream(data_->train, StreamOptions(true));
  stream.Seek(state_.position);
  Prefetcher source(std::move(stream));
  Totals totals{.first_step = state_.global_step};
  TrainResult saved;
  std::array<RunningStep, 2> steps;  // of which two may be started
  int64_t started = state_.global_step;
  bool stop = false;
  while (started < max_steps_ && !stop) {
    RunningStep& next = steps[static_cast<size_t>(started % 2)];
    ReadWindow(source, next.window);
    next.scalars = Scalars(++started);
    HEADROOM_RETURN_IF_ERROR(runner_->Start(next));
    while (state_.global_step + (MayRunAhead(started) && !stop ? 1 : 0) < started) {
      HEADROOM_ASSIGN_OR_RETURN(const StepReport report,
                                FinishStep(steps[static_cast<size_t>(state_.global_step % 2)]));
      totals.Add(report);
      observer.OnStep(report);
      if (data_->evaluation.size() > 0 && IsDue(options_.eval_steps, state_.global_step)) {
        HEADROOM_ASSIGN_OR_RETURN(const EvalReport evaluation, Evaluate());
        observer.OnEvaluate(evaluation);
      }
      stop = stop || (state_.global_step < max_steps_ && observer.ShouldStop());
    }
    saved.interrupted = stop && started < max_steps_;
    const bool is_due = IsDue(options_.save_steps, started) || saved.interrupted;
    if (is_due) HEADROOM_RETURN_IF_ERROR(Save(observer, source.position(), saved));
  }
  TrainResult result = ResultOf(totals, SecondsSince(start));
  result.saved = saved.saved;
  result.interrupted = saved.interrupted;
  result.waiting_share = source.waited_seconds() / std::max(result.train_runtime, 1e-9);
  if (!result.interrupted) {
    HEADROOM_RETURN_IF_ERROR(FinishRun(observer, source.position(), result));
  }
  return result;
}

TrainResult Trainer::ResultOf(const Totals& totals, double seconds) const {
  TrainResult result;
  result.train_runtime = seconds;
  const double runtime = std::max(seconds, 1e-9);
  const auto steps = static_cast<double>(state_.global_step);
  result.steps = state_.global_step;
  result.epochs = steps / static_cast<double>(steps_per_epoch_);
  result.train_samples_per_second = static_cast<double>(totals.samples) / runtime;
  result.train_tokens_per_second = static_cast<double>(totals.tokens) / runtime;
  result.train_steps_per_second =
      static_cast<double>(state_.global_step - totals.first_step) / runtime;
  result.train_loss = state_.loss_sum / std::max(steps, 1.0);
  result.clipped_share = static_cast<double>(state_.clipped_steps) / std::max(steps, 1.0);
  result.skipped_steps = state_.skipped_steps;
  return result;
}

// The last evaluation, the last checkpoint and the model.
Status Trainer::FinishRun(TrainObserver& observer, Position position, TrainResult& result) {
  if (data_->evaluation.size() > 0) {
    HEADROOM_ASSIGN_OR_RETURN(result.evaluation, Evaluate());
    observer.OnEvaluate(*result.evaluation);
  }
  if (options_.output_dir.empty()) return {};
  HEADROOM_RETURN_IF_ERROR(Save(observer, position, result));
  HEADROOM_RETURN_IF_ERROR(
      SaveModel(options_.output_dir, steps_->model(), steps_->executor(), origin_.files));
  result.saved = options_.output_dir;
  observer.OnSave(options_.output_dir);
  return {};
}

}  // namespace headroom::engine
