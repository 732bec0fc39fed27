// SPDX-License-Identifier: Apache-2.0
#include "engine/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "engine/decoder.h"
#include "engine/files/safetensors_file.h"
#include "engine/files/weights.h"
#include "engine/find_bad_tensor.h"
#include "engine/initialise.h"
#include "engine/logits.h"

namespace headroom::engine {
namespace {

using Clock = std::chrono::steady_clock;
using graph::Phase;
using graph::Role;

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

StepScalars Trainer::Scalars() const {
  const int64_t updates = state_.global_step + 1 - state_.skipped_steps;
  StepScalars scalars;
  scalars.seed = options_.seed;
  scalars.step = state_.global_step + 1;
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
void Trainer::ReadWindow(Prefetcher& source) {
  window_.resize(static_cast<size_t>(options_.gradient_accumulation_steps));
  size_t count = 0;
  while (count < window_.size()) {
    source.Next(window_[count++]);
    if (source.position().epoch != window_[count - 1].position.epoch) break;
  }
  window_.resize(count);
}

Status Trainer::TrainStep(StepReport& report) {
  const Clock::time_point start = Clock::now();
  StepScalars scalars = Scalars();
  int64_t targets = 0;
  for (const Batch& batch : window_) targets += batch.targets;
  scalars.targets = static_cast<float>(std::max<int64_t>(targets, 1));
  const Executor& executor = steps_->executor();
  const graph::TensorId loss_id = steps_->model().loss;
  float* loss = executor.View(loss_id).As<float>();
  *loss = 0;
  if (origin_.device != nullptr) steps_->OnDevice(executor).Zero(loss_id);
  for (size_t i = 0; i < window_.size(); ++i) {
    const Batch& batch = window_[i];
    scalars.micro_step = static_cast<int32_t>(i);
    HEADROOM_RETURN_IF_ERROR(RunMicroStep(batch, scalars));
    report.samples += batch.rows;
    report.tokens += TokensOf(batch);
  }
  RunOptimizer(scalars);
  const graph::TensorId norm_id = executor.graph().Find(Role::kBuffer, "grad_norm");
  const float* norm = executor.View(norm_id).As<float>();
  if (origin_.device != nullptr) {
    for (const graph::TensorId id : {loss_id, norm_id}) {
      steps_->OnDevice(executor).Download(id, executor.View(id).data);
    }
    HEADROOM_RETURN_IF_ERROR(origin_.device->Synchronize());
    HEADROOM_RETURN_IF_ERROR(CheckLoss(*loss, window_.back(), scalars));
  }
  report.skipped = norm[1] > 0;
  if (report.skipped && options_.precision != Precision::kFp16) {
    CopyToHost();
    return Error::Internal(Format(
        "step {}: {} values of the gradients are not finite, the first in {}: lower the learning "
        "rate, or clip with --max-grad-norm",
        report.step, norm[1], FirstBadGradient(executor)));
  }
  report.loss = static_cast<double>(*loss) / static_cast<double>(scalars.targets);
  report.grad_norm = report.skipped ? std::nan("")
                                    : std::sqrt(static_cast<double>(norm[0])) /
                                          static_cast<double>(scalars.loss_scale);
  report.clipped =
      !report.skipped && options_.max_grad_norm > 0 && report.grad_norm > options_.max_grad_norm;
  report.loss_scale = scalars.loss_scale;
  report.learning_rate = static_cast<double>(scalars.learning_rate);
  report.seconds = SecondsSince(start);
  if (options_.precision != Precision::kFp16) return {};
  state_.scaler.Update(report.skipped);
  // Forty steps that overflowed one after the other: no scale will do.
  constexpr float kLeastScale = 0x1p-24F;
  if (state_.scaler.scale > kLeastScale) return {};
  CopyToHost();
  return Error::Internal(Format(
      "step {}: gradients overflow at every loss scale; the first tensor that is not finite is {}. "
      "Lower the learning rate, or train in bf16",
      report.step, FirstBadTensor(steps_->train(window_.back()), scalars)));
}

Status Trainer::CheckLoss(double loss, const Batch& batch, const StepScalars& scalars) const {
  // In float16 an overflow skips the step, wherever it happened.
  if (std::isfinite(loss) || options_.precision == Precision::kFp16) return {};
  CopyToHost();
  const std::string bad = FirstBadTensor(steps_->train(batch), scalars);
  return Error::Internal(Format(
      "step {}: the loss is {}; the first tensor that is not finite is {}. Lower the learning rate "
      "or clip with --max-grad-norm",
      state_.global_step + 1, std::abs(loss), bad));
}

void Trainer::UploadInputs(const Executor& executor) const {
  DeviceExecutor& device = steps_->OnDevice(executor);
  for (size_t i = 0; i < executor.graph().tensors().size(); ++i) {
    const auto id = static_cast<graph::TensorId>(i);
    if (executor.graph().tensor(id).role != Role::kInput) continue;
    device.Upload(id, executor.View(id).data);
  }
}

Status Trainer::RunMicroStep(const Batch& batch, const StepScalars& scalars) {
  const Executor& executor = steps_->train(batch);
  FillInputs(steps_->train_model(batch), executor, batch, data_->pad_id);
  if (origin_.device != nullptr) {
    UploadInputs(executor);
    steps_->OnDevice(executor).Run(Section::kMicroStep, scalars);
    return {};
  }
  executor.Run(Phase::kForward, scalars);
  // Where the loss is gone, so is everything behind it.
  const float loss = *executor.View(steps_->train_model(batch).loss).As<float>();
  HEADROOM_RETURN_IF_ERROR(CheckLoss(static_cast<double>(loss), batch, scalars));
  executor.Run(Phase::kBackward, scalars);
  return {};
}

void Trainer::RunOptimizer(const StepScalars& scalars) {
  const Executor& executor = steps_->executor();
  if (origin_.device == nullptr) return executor.Run(Phase::kOptimizer, scalars);
  steps_->OnDevice(executor).Run(Section::kOptimizer, scalars);
}

// Of an evaluation; its loss starts at 0.
void Trainer::RunForward(const Batch& batch, const StepScalars& scalars) const {
  const Executor& executor = steps_->eval(batch);
  const ModelGraph& model = steps_->eval_model(batch);
  FillInputs(model, executor, batch, data_->pad_id);
  *executor.View(model.loss).As<float>() = 0;
  if (origin_.device == nullptr) return executor.Run(Phase::kForward, scalars);
  DeviceExecutor& device = steps_->OnDevice(executor);
  UploadInputs(executor);
  device.Zero(model.loss);
  device.Run(Section::kForward, scalars);
  device.Download(model.loss, executor.View(model.loss).data);
  if (IsClassifier(options_.task)) {
    device.Download(model.logits, executor.View(model.logits).data);
  }
}

void Trainer::CopyToHost() const {
  if (origin_.device == nullptr) return;
  steps_->OnDevice(steps_->executor())
      .DownloadArena(steps_->arena().data(), steps_->largest().plan.shared);
}

bool Trainer::IsDue(int64_t every) const {
  return every > 0 && state_.global_step % every == 0 && state_.global_step < max_steps_;
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
  StepScalars scalars = Scalars();
  scalars.training = false;
  for (int64_t i = 0; i < stream.batches_per_epoch(); ++i) {
    stream.Next(batch);
    const Executor& executor = steps_->eval(batch);
    const ModelGraph& model = steps_->eval_model(batch);
    RunForward(batch, scalars);
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
  TrainResult result;
  BatchStream stream(data_->train, StreamOptions(true));
  stream.Seek(state_.position);
  Prefetcher source(std::move(stream));
  int64_t samples = 0;
  int64_t tokens = 0;
  const int64_t first = state_.global_step;
  int64_t saved = -1;
  while (state_.global_step < max_steps_ && !result.interrupted) {
    ReadWindow(source);
    StepReport report;
    report.step = state_.global_step + 1;
    HEADROOM_RETURN_IF_ERROR(TrainStep(report));
    ++state_.global_step;
    state_.loss_sum += report.loss;
    state_.clipped_steps += report.clipped ? 1 : 0;
    state_.skipped_steps += report.skipped ? 1 : 0;
    samples += report.samples;
    tokens += report.tokens;
    report.epoch = static_cast<double>(state_.global_step) / static_cast<double>(steps_per_epoch_);
    observer.OnStep(report);
    const bool has_evaluation = data_->evaluation.size() > 0;
    if (has_evaluation && IsDue(options_.eval_steps)) {
      HEADROOM_ASSIGN_OR_RETURN(const EvalReport evaluation, Evaluate());
      observer.OnEvaluate(evaluation);
    }
    result.interrupted = state_.global_step < max_steps_ && observer.ShouldStop();
    if (IsDue(options_.save_steps) || result.interrupted) {
      HEADROOM_RETURN_IF_ERROR(Save(observer, source.position(), result));
      saved = state_.global_step;
    }
  }
  result.train_runtime = SecondsSince(start);
  const double runtime = std::max(result.train_runtime, 1e-9);
  const auto steps = static_cast<double>(state_.global_step);
  result.steps = state_.global_step;
  result.epochs = steps / static_cast<double>(steps_per_epoch_);
  result.train_samples_per_second = static_cast<double>(samples) / runtime;
  result.train_tokens_per_second = static_cast<double>(tokens) / runtime;
  result.train_steps_per_second = static_cast<double>(state_.global_step - first) / runtime;
  result.train_loss = state_.loss_sum / std::max(steps, 1.0);
  result.clipped_share = static_cast<double>(state_.clipped_steps) / std::max(steps, 1.0);
  result.skipped_steps = state_.skipped_steps;
  result.waiting_share = source.waited_seconds() / runtime;
  if (result.interrupted) return result;
  if (data_->evaluation.size() > 0) {
    HEADROOM_ASSIGN_OR_RETURN(result.evaluation, Evaluate());
    observer.OnEvaluate(*result.evaluation);
  }
  if (options_.output_dir.empty()) return result;
  if (saved != state_.global_step) {
    HEADROOM_RETURN_IF_ERROR(Save(observer, source.position(), result));
  }
  HEADROOM_RETURN_IF_ERROR(
      SaveModel(options_.output_dir, steps_->model(), steps_->executor(), origin_.files));
  result.saved = options_.output_dir;
  observer.OnSave(options_.output_dir);
  return result;
}

}  // namespace headroom::engine
