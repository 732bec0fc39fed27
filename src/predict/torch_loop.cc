// SPDX-License-Identifier: Apache-2.0
#include "predict/torch_loop.h"

#include "predict/autograd.h"
#include "predict/grad_scaler.h"
#include "predict/ops.h"
#include "predict/optimizers.h"

namespace headroom::predict {
namespace {

class TorchLoop {
 public:
  TorchLoop(Runtime& runtime, const Recipe& recipe, Model& model, Optimizer& optimizer)
      : runtime_(runtime),
        recipe_(recipe),
        model_(model),
        optimizer_(optimizer),
        scaler_(runtime, recipe.precision == Precision::kFp16) {}

  void Run() {
    for (step_ = 1; step_ <= recipe_.steps; ++step_) {
      for (int64_t micro = 0; micro < recipe_.gradient_accumulation_steps; ++micro) {
        LoadBatch();
        Mark("forward_begin");
        Forward();
        Mark("forward_end");
        RunBackward();
        Mark("backward_end");
      }
      OptimizerStep();
    }
  }

 private:
  void Mark(const char* name) { runtime_.ledger().Mark(name, step_); }

  void LoadBatch() {
    runtime_.phase = "data";
    runtime_.module = ModuleId{};
    const Scoped component(runtime_.component, Component::kInputs);
    const int64_t batch = recipe_.per_device_train_batch_size;
    const int64_t source = recipe_.sequence_length;
    const int64_t target =
        recipe_.target_sequence_length > 0 ? recipe_.target_sequence_length : source;
    src_ = FromHost(runtime_, {batch, source}, DType::kInt64);
    tgt_ = FromHost(runtime_, {batch, target + 1}, DType::kInt64);
  }

  void Forward() {
    runtime_.phase = "forward";
    const Scoped component(runtime_.component, Component::kActivations);
    const bool half =
        recipe_.precision == Precision::kBf16 || recipe_.precision == Precision::kFp16;
    const AutocastScope autocast(
        runtime_, half, recipe_.precision == Precision::kBf16 ? DType::kBFloat16 : DType::kFloat16);
    const int64_t length = tgt_.size(1);
    Batch inputs;
    inputs.input_ids = src_;
    inputs.labels = Slice(tgt_, 1, 0, length - 1);
    // The last iteration's logits live until these are there.
    logits_ = model_.Forward(inputs).logits;
    const Scoped kind(runtime_.kind, Kind::kLogitsLoss);
    const Tensor targets = Contiguous(Slice(tgt_, 1, 1, length));
    const Tensor loss = CrossEntropy(View(logits_, {-1, logits_.size(-1)}), View(targets, {-1}));
    loss_ = DivScalar(loss);
  }

  void RunBackward() {
    runtime_.phase = "backward";
    runtime_.module = ModuleId{};
    const Scoped kind(runtime_.kind, Kind::kLogitsLoss);
    const Tensor root = scaler_.enabled() ? scaler_.Scale(loss_) : loss_;
    Tensor gradient;
    {
      const Scoped component(runtime_.component, Component::kTemporaries);
      gradient = EmptyLike(root);
    }
    Backward(runtime_, root, gradient);
  }

  void OptimizerStep() {
    runtime_.phase = "optimizer";
    runtime_.module = ModuleId{};
    scaler_.Unscale();
    if (recipe_.max_grad_norm > 0) ClipGradNorm(runtime_, optimizer_.parameters());
    scaler_.Step(optimizer_);
    scaler_.Update();
    Mark("optimizer_end");
    optimizer_.ZeroGrad();
    Mark("step_end");
  }

  Runtime& runtime_;
  const Recipe& recipe_;
  Model& model_;
  Optimizer& optimizer_;
  GradScaler scaler_;
  int step_ = 0;

  // Names of the loop that live from one iteration to the next.
  Tensor src_;
  Tensor tgt_;
  Tensor logits_;
  Tensor loss_;
};

}  // namespace

Status RunTorchLoop(Runtime& runtime, const Recipe& recipe, const Weights& weights, Model& model) {
  const std::unique_ptr<Optimizer> optimizer =
      MakeOptimizer(recipe.optim, runtime, OptimizerParameters(weights), ParameterGroups::kOne);
  TorchLoop(runtime, recipe, model, *optimizer).Run();
  return {};
}

}  // namespace headroom::predict
