// SPDX-License-Identifier: Apache-2.0
//
// bitsandbytes 0.50.2: optim/optimizer.py (Optimizer1State, Optimizer2State), optim/ademamix.py;
// transformers 5.17.0: trainer_optimizer.py, trainer.py (create_optimizer's overrides).
#include "predict/optimizers_bnb.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

constexpr int64_t kBlock = 256;
constexpr int64_t kSmallest8Bit = 4096;     // min_8bit_size
constexpr int64_t kSmallestPaged = 100000;  // get_state_buffer
constexpr int64_t kMapSize = 256;           // create_dynamic_map

// What tells the optimizers apart: the states of each parameter.
struct Form {
  enum class Kind { kOneState, kTwoStates, kAdEMAMix };
  Kind kind = Kind::kTwoStates;
  bool is_8bit = true;
  bool is_paged = false;
};

Form FormOf(Optim optim) {
  using Kind = Form::Kind;
  switch (optim) {
    case Optim::kAdamW8bit:
      return {Kind::kTwoStates, true, false};
    case Optim::kPagedAdamW8bit:
      return {Kind::kTwoStates, true, true};
    case Optim::kPagedAdamW32bit:
      return {Kind::kTwoStates, false, true};
    case Optim::kLion8bit:
    case Optim::kRmspropBnb8bit:
      return {Kind::kOneState, true, false};
    case Optim::kLion32bit:
    case Optim::kRmspropBnb32bit:
      return {Kind::kOneState, false, false};
    case Optim::kPagedLion8bit:
      return {Kind::kOneState, true, true};
    case Optim::kPagedLion32bit:
      return {Kind::kOneState, false, true};
    case Optim::kAdEMAMix8bit:
      return {Kind::kAdEMAMix, true, false};
    case Optim::kAdEMAMix32bit:
      return {Kind::kAdEMAMix, false, false};
    case Optim::kPagedAdEMAMix8bit:
      return {Kind::kAdEMAMix, true, true};
    case Optim::kPagedAdEMAMix32bit:
      return {Kind::kAdEMAMix, false, true};
    default:
      break;
  }
  HEADROOM_CHECK(false, "an optimizer that is not bitsandbytes'");
  return {};
}

class BitsAndBytes final : public Optimizer {
 public:
  BitsAndBytes(Runtime& runtime, const std::vector<OptimizerParameter>& parameters,
               const Form& form)
      : Optimizer(runtime, parameters), form_(form) {
    for (const OptimizerParameter& parameter : parameters) {
      if (parameter.is_embedding) embeddings_.insert(parameter.tensor.impl());
    }
  }

 private:
  using Kind = Form::Kind;

  // Parameter and gradient are read, the parameter written, and each state both: a quarter of a
  // float32 element in 8 bit. Pages that move to and from the host are not counted.
  ElementWork element_work() const override {
    constexpr double kFlops = 14;
    const double states = form_.kind == Kind::kOneState    ? 1
                          : form_.kind == Kind::kTwoStates ? 2
                                                           : 3;
    const double moved = form_.is_8bit ? states / 4 : states;
    return {2 + moved, 1 + moved, kFlops};
  }

  void StepGroup(const std::vector<Tensor>& parameters) override {
    for (const Tensor& parameter : parameters) {
      std::vector<Tensor>& state = states_[parameter.impl()];
      if (state.empty()) InitState(parameter, state);
      // p.grad = p.grad.contiguous()
      if (!parameter.grad().is_contiguous()) parameter.grad() = Contiguous(parameter.grad());
    }
  }

  void InitState(const Tensor& parameter, std::vector<Tensor>& state) {
    const Scoped component(runtime_.component, Component::kOptimizer);
    const bool is_8bit = form_.is_8bit && parameter.numel() >= kSmallest8Bit &&
                         !embeddings_.contains(parameter.impl());
    const DType dtype = is_8bit ? DType::kUInt8 : DType::kFloat32;
    if (is_8bit) MoveMaps();
    if (form_.kind == Kind::kAdEMAMix) {
      if (is_8bit) AddMaxima(parameter, state, 2);
      if (is_8bit) AddMaxima(parameter, state, 1);
      AddBuffer(parameter, state, dtype, 2);
      AddBuffer(parameter, state, dtype, 1);
      return;
    }
    const int count = form_.kind == Kind::kOneState ? 1 : 2;
    for (int i = 0; i < count; ++i) AddBuffer(parameter, state, dtype, 1);
    if (!is_8bit) return;
    for (int i = 0; i < count; ++i) AddMaxima(parameter, state, 1);
  }

  // The tables from 8 bit to numbers, which the first 8-bit state brings to the device.
  void MoveMaps() {
    if (!maps_.empty()) return;
    const size_t count = form_.kind == Kind::kOneState ? 1 : 2;
    while (maps_.size() < count) maps_.push_back(Empty(runtime_, {kMapSize}, DType::kFloat32));
  }

  void AddBuffer(const Tensor& parameter, std::vector<Tensor>& state, DType dtype,
                 int64_t copies) const {
    if (form_.is_paged && parameter.numel() >= kSmallestPaged) {
      state.emplace_back();
      return;
    }
    state.push_back(Empty(runtime_, {copies * parameter.numel()}, dtype));
  }

  void AddMaxima(const Tensor& parameter, std::vector<Tensor>& state, int64_t copies) const {
    const int64_t blocks = (parameter.numel() + kBlock - 1) / kBlock;
    state.push_back(Empty(runtime_, {copies * blocks}, DType::kFloat32));
  }

  Form form_;
  std::unordered_set<const TensorImpl*> embeddings_;
  std::vector<Tensor> maps_;
  std::unordered_map<const TensorImpl*, std::vector<Tensor>> states_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeBitsAndBytesOptimizer(
    Optim optim, Runtime& runtime, const std::vector<OptimizerParameter>& parameters) {
  return std::make_unique<BitsAndBytes>(runtime, parameters, FormOf(optim));
}

}  // namespace headroom::predict
