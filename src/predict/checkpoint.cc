// SPDX-License-Identifier: Apache-2.0
//
// torch/utils/checkpoint.py, PyTorch 2.11.0: CheckpointFunction,
// _checkpoint_without_reentrant_generator, _checkpoint_hook, _recomputation_hook.
#include "predict/checkpoint.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "predict/autograd.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

// The autocast state that recomputation enters again.
struct AmbientState {
  bool autocast = false;
  DType dtype = DType::kBFloat16;

  explicit AmbientState(const Runtime& runtime)
      : autocast(runtime.autocast.enabled), dtype(runtime.autocast.dtype) {}
};

// What the backward thread looks like while it runs a layer's forward again.
class RecomputeScope {
 public:
  RecomputeScope(Runtime& runtime, const AmbientState& ambient)
      : component_(runtime.component, Component::kActivations),
        in_backward_(runtime.in_backward, false),
        grad_(runtime.grad_enabled, true),
        autocast_(runtime, ambient.autocast, ambient.dtype) {}

 private:
  Scoped<Component> component_;
  Scoped<bool> in_backward_;
  Scoped<bool> grad_;
  AutocastScope autocast_;
};

// ---- Non-reentrant ----

// _Holder: stands in the graph for a saved tensor, and holds it between recomputation and use.
struct Holder {
  Tensor recomputed;
};

// Thrown once the last saved tensor is there (early_stop).
struct StopRecomputation {};

// _CheckpointFrame: one call of one checkpointed layer.
class Frame : public std::enable_shared_from_this<Frame> {
 public:
  Frame(Runtime& runtime, CheckpointedFunction function, std::span<const Tensor> inputs)
      : runtime_(runtime),
        function_(std::move(function)),
        inputs_(inputs.begin(), inputs.end()),
        ambient_(runtime) {}

  // _checkpoint_hook.pack_hook: remembers that there was a tensor, and drops it.
  std::function<Tensor()> Register() {
    auto holder = std::make_shared<Holder>();
    holders_.push_back(holder);
    return [frame = shared_from_this(), holder] {
      frame->EnsureRecomputed();
      HEADROOM_CHECK(holder->recomputed.defined(), "a checkpointed tensor unpacked twice");
      return std::exchange(holder->recomputed, Tensor());
    };
  }

  // _recomputation_hook.pack_hook: hands the tensor to its holder, if that still lives.
  std::function<Tensor()> Fill(const Tensor& tensor) {
    const Tensor detached = tensor.requires_grad() ? Detach(tensor) : tensor;
    HEADROOM_CHECK(next_ < holders_.size(), "more tensors saved in recomputation than in forward");
    if (const std::shared_ptr<Holder> holder = holders_[next_].lock())
      holder->recomputed = detached;
    ++next_;
    if (next_ == holders_.size()) throw StopRecomputation();
    return [detached] { return detached; };
  }

 private:
  class RecomputeHooks final : public SavedTensorHooks {
   public:
    explicit RecomputeHooks(Frame& frame) : frame_(frame) {}
    std::function<Tensor()> Pack(const Tensor& tensor) override { return frame_.Fill(tensor); }

   private:
    Frame& frame_;
  };

  void EnsureRecomputed() {
    if (recomputed_) return;
    recomputed_ = true;
    const Scoped module(runtime_.module, runtime_.module);
    const Scoped kind(runtime_.kind, runtime_.kind);
    const OpId op = runtime_.op();
    RecomputeHooks hooks(*this);
    const Scoped<SavedTensorHooks*> active(runtime_.hooks, &hooks);
    try {
      const RecomputeScope scope(runtime_, ambient_);
      function_(inputs_);
    } catch (const StopRecomputation&) {
    }
    runtime_.set_op(op);
  }

  Runtime& runtime_;
  CheckpointedFunction function_;
  std::vector<Tensor> inputs_;
  AmbientState ambient_;
  std::vector<std::weak_ptr<Holder>> holders_;
  size_t next_ = 0;
  bool recomputed_ = false;
};

class ForwardHooks final : public SavedTensorHooks {
 public:
  explicit ForwardHooks(std::shared_ptr<Frame> frame) : frame_(std::move(frame)) {}
  std::function<Tensor()> Pack(const Tensor&) override { return frame_->Register(); }

 private:
  std::shared_ptr<Frame> frame_;
};

Tensor NonReentrant(const CheckpointedFunction& function, std::span<const Tensor> inputs) {
  Runtime& runtime = inputs.front().runtime();
  if (!runtime.grad_enabled) return function(inputs);
  ForwardHooks hooks(std::make_shared<Frame>(runtime, function, inputs));
  const Scoped<SavedTensorHooks*> active(runtime.hooks, &hooks);
  return function(inputs);
}

// ---- Reentrant ----

Grads ReentrantBackward(Runtime& runtime, const CheckpointedFunction& function,
                        const std::vector<SavedTensor>& saved, const AmbientState& ambient,
                        const Tensor& grad) {
  std::vector<Tensor> detached;
  for (const SavedTensor& input : saved) {
    const Tensor original = input.Unpack();
    Tensor copy = Detach(original);
    copy.impl()->leaf_requires_grad = original.requires_grad();
    detached.push_back(copy);
  }
  Tensor output;
  {
    const Scoped module(runtime.module, runtime.module);
    const Scoped kind(runtime.kind, runtime.kind);
    const OpId op = runtime.op();
    {
      const RecomputeScope scope(runtime, ambient);
      output = function(detached);
    }
    runtime.set_op(op);
  }
  Backward(runtime, output, grad);
  Grads grads;
  for (const Tensor& input : detached) grads.push_back(input.grad());
  return grads;
}

Tensor Reentrant(const CheckpointedFunction& function, std::span<const Tensor> inputs) {
  Runtime& runtime = inputs.front().runtime();
  GradRecorder record(runtime, "CheckpointFunctionBackward", inputs);
  std::vector<SavedTensor> saved;
  for (const Tensor& input : inputs) saved.push_back(record.Save(input));
  Tensor output;
  {
    const Scoped no_grad(runtime.grad_enabled, false);
    output = function(inputs);
  }
  const AmbientState ambient(runtime);
  return record.Finish(std::move(output), [&runtime, function, saved, ambient](Grads& grads) {
    return ReentrantBackward(runtime, function, saved, ambient, grads[0]);
  });
}

}  // namespace

Tensor Checkpoint(CheckpointKind kind, const CheckpointedFunction& function,
                  std::span<const Tensor> inputs) {
  switch (kind) {
    case CheckpointKind::kNone:
      return function(inputs);
    case CheckpointKind::kNonReentrant:
      return NonReentrant(function, inputs);
    case CheckpointKind::kReentrant:
      return Reentrant(function, inputs);
  }
  HEADROOM_CHECK(false, "unknown kind of checkpointing");
  return Tensor();
}

Tensor Checkpoint(CheckpointKind kind, const std::function<Tensor(const Tensor&)>& function,
                  const Tensor& hidden) {
  if (kind == CheckpointKind::kNone) return function(hidden);
  return Checkpoint(
      kind, [function](std::span<const Tensor> inputs) { return function(inputs[0]); },
      std::span(&hidden, 1));
}

}  // namespace headroom::predict
