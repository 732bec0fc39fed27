// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0 trainer.py (_inner_training_loop, _run_epoch, training_step, compute_loss),
// accelerate 1.15.0 accelerator.py.
#include "predict/trainer.h"

#include <optional>
#include <string>
#include <vector>

#include "predict/autograd.h"
#include "predict/grad_scaler.h"
#include "predict/ops.h"
#include "predict/optimizers.h"

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
             const Recipe& recipe, Model& model, Optimizer& optimizer)
      : runtime_(runtime),
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
    for (step_ = 1; step_ <= recipe_.steps; ++step_) Step();
  }

 private:
  void Mark(const char* name) { runtime_.ledger().Mark(name, step_); }

  void Step() {
    GetBatchSamples();
    inputs_ = batches_[0];
    for (size_t micro = 0; micro < batches_.size(); ++micro) {
      inputs_ = batches_[micro];
      if (micro == 0) Mark("step_begin");
      tr_loss_step_ = TrainingStep();
      FilterNan();
      if (micro + 1 < batches_.size()) Mark("substep_end");
    }
    runtime_.phase = "optimizer";
    runtime_.module = ModuleId{};
    grad_norm_ = Tensor();
    scaler_.Unscale();
    grad_norm_ = ClipGradNorm(runtime_, optimizer_.parameters());
    Mark("backward_end");
    scaler_.Step(optimizer_);
    scaler_.Update();
    Mark("optimizer_end");
    optimizer_.ZeroGrad();
    Mark("step_end");
  }

  // get_batch_samples: all micro-batches of the step come to the device before the first runs; the
  // last step's go only when they are there.
  void GetBatchSamples() {
    runtime_.phase = "data";
    const Scoped component(runtime_.component, Component::kInputs);
    const Scoped no_grad(runtime_.grad_enabled, false);
    std::vector<Batch> batches;
    for (int64_t i = 0; i < recipe_.gradient_accumulation_steps; ++i)
      batches.push_back(LoadBatch());
    Tensor items;
    if (accepts_loss_kwargs_) items = CountItems(batches);
    batches_ = std::move(batches);
    num_items_in_batch_ = items;
  }

  // send_to_device of the collated batch: keys in the order of the data set.
  Batch LoadBatch() {
    const int64_t batch = recipe_.per_device_train_batch_size;
    const int64_t sequence = recipe_.sequence_length;
    Batch loaded;
    if (recipe_.task == Task::kImageClassification) {
      const int64_t size = config_.Int("image_size");
      loaded.pixel_values =
          FromHost(runtime_, {batch, config_.Int("num_channels"), size, size}, DType::kFloat32);
      loaded.labels = FromHost(runtime_, {batch}, DType::kInt64);
      return loaded;
    }
    loaded.input_ids = FromHost(runtime_, {batch, sequence}, DType::kInt64);
    if (recipe_.attention_mask) {
      loaded.attention_mask = FromHost(runtime_, {batch, sequence}, DType::kInt64);
    }
    if (recipe_.task == Task::kSequenceClassification) {
      loaded.labels = FromHost(runtime_, {batch}, DType::kInt64);
    } else if (recipe_.task == Task::kSeq2SeqLm && recipe_.target_sequence_length > 0) {
      loaded.labels = FromHost(runtime_, {batch, recipe_.target_sequence_length}, DType::kInt64);
    } else {
      loaded.labels = FromHost(runtime_, {batch, sequence}, DType::kInt64);
    }
    return loaded;
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
    return total;
  }

  Tensor TrainingStep() {
    Tensor loss = ComputeLoss();
    Mark("forward_end");
    runtime_.phase = "backward";
    runtime_.module = ModuleId{};
    const Scoped kind(runtime_.kind, Kind::kLogitsLoss);
    // Trainer divides by the number of micro-batches only where the model did not.
    if (!accepts_loss_kwargs_) loss = DivScalar(loss);
    const Tensor scaled = AcceleratorBackward(loss);
    return Detach(loss);
  }

  // Accelerator.backward: divides by its own accumulation steps (1), scales, runs backward.
  Tensor AcceleratorBackward(const Tensor& loss) {
    Tensor divided = DivScalar(loss);
    const Tensor root = scaler_.enabled() ? scaler_.Scale(divided) : divided;
    Tensor gradient;
    {
      const Scoped component(runtime_.component, Component::kTemporaries);
      gradient = EmptyLike(root);
    }
    Backward(runtime_, root, gradient);
    return Tensor();
  }

  Tensor ComputeLoss() {
    runtime_.phase = "forward";
    Mark("forward_begin");
    const Scoped component(runtime_.component, Component::kActivations);
    const ModelOutput outputs = ForwardInFp32();
    Tensor loss = outputs.loss;
    if (accepts_loss_kwargs_) loss = ScaleInPlace(loss);
    // The loss alone is returned: the other outputs go with this frame.
    return loss;
  }

  // model.forward as Accelerator.prepare_model wraps it: in autocast, outputs converted to fp32.
  ModelOutput ForwardInFp32() {
    Batch batch = inputs_;
    if (accepts_loss_kwargs_) batch.num_items_in_batch = num_items_in_batch_;
    if (recipe_.precision != Precision::kBf16 && recipe_.precision != Precision::kFp16) {
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

  // torch.isnan(loss) or torch.isinf(loss), then the loss is added in place.
  void FilterNan() {
    const Scoped component(runtime_.component, Component::kTemporaries);
    const Scoped no_grad(runtime_.grad_enabled, false);
    { const Tensor is_nan = CompareScalar(tr_loss_step_); }
    const Tensor magnitude = EmptyLike(tr_loss_step_);
    const Tensor is_inf = CompareScalar(magnitude);
  }

  Runtime& runtime_;
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

}  // namespace

Status RunTrainer(Runtime& runtime, const Architecture& architecture, const ModelConfig& config,
                  const Recipe& recipe, const Weights& weights, Model& model) {
  HEADROOM_ASSIGN_OR_RETURN(const std::unique_ptr<Optimizer> optimizer,
                            MakeOptimizer(recipe.optim, runtime, weights.parameters()));
  TrainerRun(runtime, architecture, config, recipe, model, *optimizer).Run();
  return {};
}

}  // namespace headroom::predict
