// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0 trainer.py (_inner_training_loop, _run_epoch, training_step, compute_loss),
// accelerate 1.15.0 accelerator.py.
#include "predict/trainer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "predict/autograd.h"
#include "predict/grad_scaler.h"
#include "predict/losses.h"
#include "predict/ops.h"
#include "predict/optimizers.h"
#include "predict/wrapper.h"

namespace headroom::predict {
namespace {

// `loss *= 1` in place: a node, and no memory.
Tensor ScaleInPlace(const Tensor& loss) {
  GradRecorder record(loss.runtime(), "MulBackward0", {loss});
  return record.Finish(Detach(loss), [](Grads& grads) -> Grads { return {MulScalar(grads[0])}; });
}

class TrainerRun {
 public:
  TrainerRun(Runtime& runtime, const Architecture& architecture, const ModelConfig& config,
             const Recipe& recipe, Model& model, Optimizer& optimizer, Wrapper* wrapper)
      : runtime_(runtime),
        wrapper_(wrapper),
        config_(config),
        recipe_(recipe),
        model_(model),
        optimizer_(optimizer),
        scaler_(runtime, recipe.precision == Precision::kFp16),
        accepts_loss_kwargs_(architecture.accepts_loss_kwargs(recipe.task)),
        loss_shifts_labels_(architecture.loss_shifts_labels(recipe.task)) {}

  void Run() {
    {
      const Scoped component(runtime_.component, Component::kTemporaries);
      tr_loss_ = Empty(runtime_, {}, DType::kFloat32);
    }
    runtime_.ledger().Mark("train_begin", 0);
    const auto steps =
        recipe_.batches.empty() ? recipe_.steps : static_cast<int>(recipe_.batches.size());
    for (step_ = 1; step_ <= steps; ++step_) {
      if (runtime_.keep_going && !runtime_.keep_going(step_)) return;
      Step();
    }
  }

 private:
  void Mark(const char* name) { runtime_.ledger().Mark(name, step_); }

  void Step() {
    GetBatchSamples();
    inputs_ = batches_[0];
    for (size_t micro = 0; micro < batches_.size(); ++micro) {
      inputs_ = batches_[micro];
      if (micro == 0) Mark("step_begin");
      tr_loss_step_ = TrainingStep(micro + 1 == batches_.size());
      FilterNan();
      if (micro + 1 < batches_.size()) Mark("substep_end");
    }
    runtime_.phase = "optimizer";
    runtime_.module = ModuleId{};
    grad_norm_ = Tensor();
    scaler_.Unscale();
    grad_norm_ = ClipGradNorm(runtime_, optimizer_.parameters());
    Mark("backward_end");
    if (wrapper_ != nullptr) wrapper_->BeginStep();
    scaler_.Step(optimizer_);
    if (wrapper_ != nullptr) wrapper_->EndStep();
    scaler_.Update();
    Mark("optimizer_end");
    optimizer_.ZeroGrad();
    Mark("step_end");
    MaybeEvaluate();
  }

  // get_batch_samples: all micro-batches of the step come to the device before the first runs; the
  // last step's go only when they are there.
  void GetBatchSamples() {
    runtime_.phase = "data";
    const Scoped component(runtime_.component, Component::kInputs);
    const Scoped no_grad(runtime_.grad_enabled, false);
    std::vector<Batch> batches;
    for (int64_t i = 0; i < recipe_.gradient_accumulation_steps; ++i)
      batches.push_back(LoadBatch(BatchOfStep()));
    Tensor items;
    if (accepts_loss_kwargs_) items = CountItems(batches);
    batches_ = std::move(batches);
    num_items_in_batch_ = items;
  }

  BatchShape BatchOfStep() const {
    if (!recipe_.batches.empty()) return recipe_.batches[static_cast<size_t>(step_) - 1];
    return {recipe_.per_device_train_batch_size, recipe_.sequence_length};
  }

  // send_to_device of the collated batch: keys in the order of the data set.
  Batch LoadBatch(const BatchShape& shape) {
    const int64_t batch = shape.samples;
    const int64_t sequence = shape.tokens;
    Batch loaded;
    if (recipe_.task == Task::kImageClassification) {
      const int64_t size = config_.Int("image_size");
      loaded.pixel_values =
          FromHost(runtime_, {batch, config_.Int("num_channels"), size, size}, DType::kFloat32);
      loaded.labels = FromHost(runtime_, {batch}, DType::kInt64);
      return loaded;
    }
    if (const std::optional<int64_t> bins = config_.MaybeInt("num_mel_bins")) {
      // A spectrogram of the encoder's full length, and its text.
      const int64_t frames = 2 * config_.Int("max_source_positions");
      loaded.input_features = FromHost(runtime_, {batch, *bins, frames}, DType::kFloat32);
      const int64_t target = recipe_.target_sequence_length;
      loaded.labels = FromHost(runtime_, {batch, target > 0 ? target : sequence}, DType::kInt64);
      return loaded;
    }
    loaded.input_ids = FromHost(runtime_, {batch, sequence}, DType::kInt64);
    if (recipe_.attention_mask) {
      loaded.attention_mask = FromHost(runtime_, {batch, sequence}, DType::kInt64);
    }
    if (recipe_.task == Task::kSequenceClassification) {
      loaded.labels = LoadClassLabels(batch);
    } else if (recipe_.task == Task::kSeq2SeqLm && recipe_.target_sequence_length > 0) {
      loaded.labels = FromHost(runtime_, {batch, recipe_.target_sequence_length}, DType::kInt64);
    } else {
      loaded.labels = FromHost(runtime_, {batch, sequence}, DType::kInt64);
    }
    return loaded;
  }

  // One label a sample, or a vector of numbers: what the loss of the problem type reads.
  Tensor LoadClassLabels(int64_t batch) {
    switch (ProblemTypeOf(config_, recipe_)) {
      case ProblemType::kRegression:
        if (config_.Int("num_labels") == 1) return FromHost(runtime_, {batch}, DType::kFloat32);
        [[fallthrough]];
      case ProblemType::kMultiLabel:
        return FromHost(runtime_, {batch, config_.Int("num_labels")}, DType::kFloat32);
      case ProblemType::kSingleLabel:
        break;
    }
    return FromHost(runtime_, {batch}, DType::kInt64);
  }

  // sum(labels.ne(-100).sum() for labels in …): Python's sum starts from 0.
  Tensor CountItems(const std::vector<Batch>& batches) {
    Tensor total;
    for (const Batch& batch : batches) {
      Tensor labels = batch.labels;
      if (loss_shifts_labels_) labels = Slice(labels, 1, 1, labels.size(1));
      Tensor count;
      {
        const Tensor valid = CompareScalar(labels);
        // The kernel sums int64; bool is cast first.
        count = Empty(runtime_, {}, DType::kInt64);
        const Tensor cast = Empty(runtime_, valid.shape(), DType::kInt64);
      }
      total = total.defined() ? AddOutOfPlace(total, count) : AddScalar(count);
    }
    return recipe_.parallel.ranks > 1 ? SumOverRanks(total) : total;
  }

  // Accelerator.gather(…).sum()
  Tensor SumOverRanks(const Tensor& count) {
    const Tensor row = Clone(count);
    const Tensor gathered = Empty(runtime_, {recipe_.parallel.ranks}, count.dtype());
    return Empty(runtime_, {}, count.dtype());
  }

  Tensor TrainingStep(bool sync) {
    Tensor loss = ComputeLoss();
    Mark("forward_end");
    // global_step counts the optimizer steps that are done.
    const int64_t every = recipe_.torch_empty_cache_steps;
    if (every > 0 && (step_ - 1) % every == 0) runtime_.EmptyCache();
    runtime_.phase = "backward";
    runtime_.module = ModuleId{};
    const Scoped kind(runtime_.kind, Kind::kLogitsLoss);
    // Trainer divides by the number of micro-batches only where the model did not.
    if (!accepts_loss_kwargs_) loss = DivScalar(loss);
    const Tensor scaled = AcceleratorBackward(loss, sync);
    return Detach(loss);
  }

  // Accelerator.backward: divides by its own accumulation steps (1), scales, runs backward.
  Tensor AcceleratorBackward(const Tensor& loss, bool sync) {
    Tensor divided = DivScalar(loss);
    const Tensor root = scaler_.enabled() ? scaler_.Scale(divided) : divided;
    Tensor gradient;
    {
      const Scoped component(runtime_.component, Component::kTemporaries);
      gradient = EmptyLike(root);
    }
    if (wrapper_ != nullptr) wrapper_->BeginBackward(sync);
    Backward(runtime_, root, gradient);
    if (wrapper_ != nullptr) wrapper_->EndBackward();
    return Tensor();
  }

  Tensor ComputeLoss() {
    runtime_.phase = "forward";
    Mark("forward_begin");
    const Scoped component(runtime_.component, Component::kActivations);
    if (wrapper_ != nullptr) wrapper_->BeginForward();
    ModelOutput outputs = ForwardInFp32(inputs_, num_items_in_batch_);
    if (wrapper_ != nullptr) wrapper_->EndForward(outputs);
    Tensor loss = outputs.loss;
    if (accepts_loss_kwargs_) loss = ScaleInPlace(loss);
    // The loss alone is returned: the other outputs go with this frame.
    return loss;
  }

  // model.forward as Accelerator.prepare_model wraps it: in autocast, outputs converted to fp32.
  ModelOutput ForwardInFp32(Batch batch, const Tensor& num_items_in_batch) {
    if (accepts_loss_kwargs_) batch.num_items_in_batch = num_items_in_batch;
    const bool half =
        recipe_.precision == Precision::kBf16 || recipe_.precision == Precision::kFp16;
    if (!half || (wrapper_ != nullptr && !wrapper_->uses_autocast())) {
      return model_.Forward(batch);
    }
    ModelOutput outputs;
    {
      const AutocastScope autocast(
          runtime_, true,
          recipe_.precision == Precision::kFp16 ? DType::kFloat16 : DType::kBFloat16);
      outputs = model_.Forward(batch);
    }
    const Scoped kind(runtime_.kind, Kind::kLogitsLoss);
    const auto convert = [](const Tensor& x) {
      return x.defined() && IsHalf(x.dtype()) ? ToCopy(x, DType::kFloat32) : x;
    };
    ModelOutput converted;
    converted.loss = convert(outputs.loss);
    converted.logits = convert(outputs.logits);
    for (const Tensor& other : outputs.others) converted.others.push_back(convert(other));
    return converted;
  }

  // ---- Evaluation ----

  // Every eval_steps, and at the end of training where that is no multiple of them.
  void MaybeEvaluate() {
    if (!recipe_.evaluation) return;
    const Evaluation& how = *recipe_.evaluation;
    if (step_ % how.eval_steps != 0 && step_ != recipe_.steps) return;
    Mark("evaluate_begin");
    runtime_.phase = "evaluation";
    {
      const Scoped eval(runtime_.training, false);
      const Scoped no_grad(runtime_.grad_enabled, false);
      EvaluationLoop(how);
    }
    Mark("evaluate_end");
  }

  // What prediction_step returns: the loss, the outputs that are kept, the labels.
  struct Prediction {
    Tensor loss;
    std::vector<Tensor> logits;
    Tensor labels;
  };
  // EvalLoopContainer of losses, predictions and labels.
  using Kept = std::vector<Tensor>;

  void EvaluationLoop(const Evaluation& how) {
    // Without compute_metrics evaluate() asks for the loss alone.
    const bool loss_only = how.prediction_loss_only || !how.compute_metrics;
    const int64_t batch_size = how.per_device_eval_batch_size;
    Kept all_losses, all_logits, all_labels;
    Batch loaded;  // the data loader's own
    Batch inputs;
    Prediction step;
    int64_t done = 0;
    for (int64_t left = how.samples; left > 0; left -= batch_size) {
      const int64_t batch = std::min(left, batch_size);
      loaded = Batch();
      {
        const Scoped component(runtime_.component, Component::kInputs);
        loaded = LoadBatch({batch, recipe_.sequence_length});
      }
      inputs = loaded;
      PredictionStep(inputs, loss_only, step);
      const Scoped component(runtime_.component, Component::kTemporaries);
      // losses.repeat(batch_size); the last batch is cut to its samples.
      step.loss = Slice(Empty(runtime_, {batch_size}, DType::kFloat32), 0, 0, batch);
      Append(all_losses, {step.loss});
      if (!loss_only) KeepResults(step, all_logits, all_labels);
      ++done;
      if (how.eval_accumulation_steps > 0 && done % how.eval_accumulation_steps == 0) {
        for (Kept* kept : {&all_losses, &all_logits, &all_labels}) kept->clear();
        step = {};
        inputs = Batch();
        runtime_.EmptyCache();
      }
    }
    for (Kept* kept : {&all_losses, &all_logits, &all_labels}) kept->clear();
  }

  void KeepResults(const Prediction& step, Kept& all_logits, Kept& all_labels) {
    PadAcrossProcesses(step.labels);
    for (const Tensor& logits : step.logits) PadAcrossProcesses(logits);
    Append(all_logits, step.logits);
    Append(all_labels, {step.labels});
  }

  // Asks the other processes, of which there are none, for the size of dimension 1.
  void PadAcrossProcesses(const Tensor& tensor) {
    if (tensor.rank() < 2) return;
    const Tensor size = FromHost(runtime_, {tensor.rank()}, DType::kInt64);
  }

  // nested_concat: everything new is there before anything old goes.
  void Append(Kept& kept, const std::vector<Tensor>& added) {
    if (kept.empty()) {
      kept = added;
      return;
    }
    Kept joined;
    for (size_t i = 0; i < added.size(); ++i) {
      const Tensor both[] = {kept[i], added[i]};
      joined.push_back(Cat(both, 0));
    }
    kept = std::move(joined);
  }

  // Fills `result`, the caller's names, as the call returns.
  void PredictionStep(const Batch& inputs, bool loss_only, Prediction& result) {
    Prediction fresh;
    {
      Tensor items;
      if (accepts_loss_kwargs_) items = CountItems({inputs});
      const Scoped component(runtime_.component, Component::kActivations);
      const ModelOutput outputs = ForwardInFp32(inputs, items);
      // loss.detach().mean()
      fresh.loss = Empty(runtime_, {}, DType::kFloat32);
      if (!loss_only) {
        fresh.labels = Detach(inputs.labels);
        fresh.logits.push_back(Detach(outputs.logits));
        for (const Tensor& other : outputs.others) fresh.logits.push_back(Detach(other));
      }
    }
    result = std::move(fresh);
  }

  // torch.isnan(loss) or torch.isinf(loss), then the loss is added in place.
  void FilterNan() {
    const Scoped component(runtime_.component, Component::kTemporaries);
    const Scoped no_grad(runtime_.grad_enabled, false);
    { const Tensor is_nan = CompareScalar(tr_loss_step_); }
    const Tensor magnitude = EmptyLike(tr_loss_step_);
    const Tensor is_inf = CompareScalar(magnitude);
  }

  Runtime& runtime_;
  Wrapper* wrapper_;  // null in a run of one process
  const ModelConfig& config_;
  const Recipe& recipe_;
  Model& model_;
  Optimizer& optimizer_;
  GradScaler scaler_;
  bool accepts_loss_kwargs_;
  bool loss_shifts_labels_;
  int step_ = 0;

  // Names of the training loop that live from one iteration to the next.
  Tensor tr_loss_;
  std::vector<Batch> batches_;
  Batch inputs_;
  Tensor num_items_in_batch_;
  Tensor tr_loss_step_;
  Tensor grad_norm_;
};

// The model's parameters, or what a wrapper keeps in their places: a share of each, or one flat
// partition of all.
std::vector<OptimizerParameter> SteppedParameters(const Weights& weights, const Wrapper* wrapper) {
  std::vector<OptimizerParameter> parameters = OptimizerParameters(weights);
  if (wrapper == nullptr) return parameters;
  const std::vector<Tensor>& stepped = wrapper->optimizer_parameters();
  if (stepped.size() != parameters.size()) parameters.clear();
  parameters.resize(stepped.size());
  for (size_t i = 0; i < stepped.size(); ++i) parameters[i].tensor = stepped[i];
  return parameters;
}

}  // namespace

Status RunTrainer(Runtime& runtime, const Architecture& architecture, const ModelConfig& config,
                  const Recipe& recipe, const Weights& weights, Model& model) {
  const std::unique_ptr<Wrapper> wrapper = MakeWrapper(runtime, recipe, weights);
  const std::unique_ptr<Optimizer> optimizer =
      MakeOptimizer(recipe.optim, runtime, SteppedParameters(weights, wrapper.get()));
  const Scoped<RunObserver*> observer(runtime.run_observer, wrapper.get());
  TrainerRun(runtime, architecture, config, recipe, model, *optimizer, wrapper.get()).Run();
  return {};
}

}  // namespace headroom::predict
