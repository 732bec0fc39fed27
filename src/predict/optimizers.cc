// SPDX-License-Identifier: Apache-2.0
//
// torch/optim/{adam,adamw,sgd,adagrad,rmsprop}.py and torch/nn/utils/clip_grad.py of
// PyTorch 2.11.0; Adafactor of transformers 5.17.0, optimization.py.
#include "predict/optimizers.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <unordered_map>

#include "model/module_list.h"
#include "predict/autograd.h"
#include "predict/cuda_reduce.h"
#include "predict/modules.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/optimizers_bnb.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

// torch.zeros_like(parameter) as optimizer state.
Tensor State(const Tensor& like, DType dtype) {
  const Scoped component(like.runtime().component, Component::kOptimizer);
  return EmptyLike(like, dtype);
}
Tensor State(const Tensor& like) { return State(like, like.dtype()); }

// A state tensor of its own shape.
Tensor State(Runtime& runtime, const Shape& shape, DType dtype) {
  const Scoped component(runtime.component, Component::kOptimizer);
  return Empty(runtime, shape, dtype);
}

// torch._foreach_sqrt and its like: a copy of every tensor of the list, until the list dies.
std::vector<Tensor> ForeachCopy(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> copies;
  copies.reserve(tensors.size());
  for (const Tensor& tensor : tensors) copies.push_back(EmptyLike(tensor));
  return copies;
}

using StateMap = std::unordered_map<const TensorImpl*, Tensor>;

// Adam and AdamW, fused or foreach.
class Adam final : public Optimizer {
 public:
  Adam(Runtime& runtime, const std::vector<OptimizerParameter>& parameters, bool fused)
      : Optimizer(runtime, parameters), fused_(fused) {}

  bool is_fused() const override { return fused_; }

 private:
  // Fused: reads the parameter, its gradient and both moments, writes all but the gradient.
  // Foreach, list by list: decay (1 read, 1 write), lerp_ (2, 1), mul_ (1, 1), addcmul_ (2, 1),
  // sqrt (1, 1), div_ (1, 1), add_ (1, 1), addcdiv_ (3, 1).
  ElementWork element_work() const override {
    constexpr double kFlops = 14;
    return fused_ ? ElementWork{4, 3, kFlops} : ElementWork{12, 8, kFlops};
  }
  void StepGroup(const std::vector<Tensor>& parameters) override {
    std::vector<Tensor> exp_avg_sqs;
    for (const Tensor& parameter : parameters) {
      if (!exp_avg_sq_.contains(parameter.impl())) {
        // The fused form counts steps on the device.
        if (fused_) steps_.push_back(State(runtime_, {}, DType::kFloat32));
        exp_avg_.push_back(State(parameter));
        exp_avg_sq_[parameter.impl()] = State(parameter);
      }
      exp_avg_sqs.push_back(exp_avg_sq_[parameter.impl()]);
    }
    if (!fused_) const std::vector<Tensor> square_roots = ForeachCopy(exp_avg_sqs);
  }

  bool fused_;
  std::vector<Tensor> steps_;
  std::vector<Tensor> exp_avg_;
  StateMap exp_avg_sq_;
};

// SGD without momentum, as optim="sgd" is.
class Sgd final : public Optimizer {
 public:
  Sgd(Runtime& runtime, const std::vector<OptimizerParameter>& parameters)
      : Optimizer(runtime, parameters) {}

 private:
  ElementWork element_work() const override { return {2, 1, 2}; }
  void StepGroup(const std::vector<Tensor>&) override {}
};

class Adagrad final : public Optimizer {
 public:
  Adagrad(Runtime& runtime, const std::vector<OptimizerParameter>& parameters)
      : Optimizer(runtime, parameters) {
    for (const std::vector<Tensor>& group : groups_) {
      for (const Tensor& parameter : group) sums_.emplace(parameter.impl(), State(parameter));
    }
    // States exist before AcceleratedOptimizer wraps the optimizer, which moves the step counters
    // to the device with them (accelerate 1.15.0, optimizer.py).
    for (size_t i = 0; i < sums_.size(); ++i) steps_.push_back(State(runtime, {}, DType::kFloat32));
  }

 private:
  // addcmul_ (2 reads, 1 write), sqrt, add_, mul (1, 1 each), addcdiv_ (3, 1).
  ElementWork element_work() const override { return {8, 5, 7}; }
  void StepGroup(const std::vector<Tensor>& parameters) override {
    const std::vector<Tensor> std = ForeachCopy(parameters);
    const std::vector<Tensor> numerator = ForeachCopy(parameters);
  }

  StateMap sums_;
  std::vector<Tensor> steps_;
};

class RmsProp final : public Optimizer {
 public:
  RmsProp(Runtime& runtime, const std::vector<OptimizerParameter>& parameters)
      : Optimizer(runtime, parameters) {}

 private:
  // mul_ (1 read, 1 write), addcmul_ (2, 1), sqrt, add_ (1, 1 each), addcdiv_ (3, 1).
  ElementWork element_work() const override { return {8, 5, 8}; }
  void StepGroup(const std::vector<Tensor>& parameters) override {
    for (const Tensor& parameter : parameters) {
      if (!square_avg_.contains(parameter.impl())) {
        square_avg_.emplace(parameter.impl(), State(parameter));
      }
    }
    const std::vector<Tensor> avg = ForeachCopy(parameters);
  }

  StateMap square_avg_;
};

// tensor.norm(2) / numel ** 0.5
Tensor Rms(const Tensor& tensor) {
  Runtime& runtime = tensor.runtime();
  const Tensor norm = Empty(runtime, {}, tensor.dtype());
  std::array<int, Shape::kMaxRank> dims{};
  for (int dim = 0; dim < tensor.rank(); ++dim) dims[static_cast<size_t>(dim)] = dim;
  const ReductionScratch scratch =
      PlanReduction(tensor, std::span(dims.data(), static_cast<size_t>(tensor.rank())), 4,
                    runtime.platform().gpu);
  if (scratch.buffer > 0) {
    const Ref<Storage> buffer = runtime.Scratch(scratch.buffer);
    const Ref<Storage> semaphores = runtime.Scratch(scratch.semaphores);
  }
  return DivScalar(norm);
}

// transformers' Adafactor without first moment; second moments are factored into rows and columns.
class Adafactor final : public Optimizer {
 public:
  Adafactor(Runtime& runtime, const std::vector<OptimizerParameter>& parameters)
      : Optimizer(runtime, parameters) {}

 private:
  struct Moments {
    Tensor row, column, whole;
    Tensor rms;
  };
  // Names of step() that outlive one parameter: Python rebinds them at the next.
  struct Locals {
    Tensor grad, parameter, update;
  };

  // In place, beside what the ops tell: the moments' decay and sum are small; update.mul_(grad),
  // div_(rms), mul_(lr) and the sum into the parameter, and the two norms.
  ElementWork element_work() const override { return {7, 4, 8}; }
  void StepGroup(const std::vector<Tensor>& parameters) override {
    for (const Tensor& parameter : parameters) StepParameter(parameter);
  }

  void StepParameter(const Tensor& parameter) {
    locals_.grad = To(parameter.grad(), DType::kFloat32);
    const bool factored = parameter.rank() >= 2;
    Moments& moments = moments_[parameter.impl()];
    if (!moments.rms.defined()) InitState(moments, locals_.grad, factored);
    locals_.parameter = To(parameter, DType::kFloat32);
    {
      const Scoped component(runtime_.component, Component::kOptimizer);
      moments.rms = Rms(locals_.parameter);
    }
    {
      const Tensor square = Pow(locals_.grad, 2);
      locals_.update = AddScalar(square);
    }
    if (factored) {
      UpdateFactored(moments);
    } else {
      locals_.update = Rsqrt(moments.whole);
    }
    {
      Tensor ratio = Rms(locals_.update);
      ratio = DivScalar(ratio);
    }
    const Tensor negative = Neg(locals_.update);
  }

  static void InitState(Moments& moments, const Tensor& grad, bool factored) {
    if (!factored) {
      moments.whole = State(grad);
      return;
    }
    Shape rows;
    Shape columns;
    for (int dim = 0; dim < grad.rank(); ++dim) {
      if (dim != grad.rank() - 1) rows.Append(grad.size(dim));
      if (dim != grad.rank() - 2) columns.Append(grad.size(dim));
    }
    moments.row = State(grad.runtime(), rows, grad.dtype());
    moments.column = State(grad.runtime(), columns, grad.dtype());
  }

  void UpdateFactored(const Moments& moments) {
    { const Tensor row_mean = Mean(locals_.update, -1, false); }
    { const Tensor column_mean = Mean(locals_.update, -2, false); }
    // _approx_sq_grad
    Tensor row_factor;
    {
      const Tensor mean = Mean(moments.row, -1, true);
      row_factor = Div(moments.row, mean);
    }
    const Tensor column_factor = Rsqrt(Unsqueeze(moments.column, -2));
    Tensor product = Mul(Unsqueeze(row_factor, -1), column_factor);
    locals_.update = std::move(product);
  }

  void EndStep() override { locals_ = {}; }

  std::unordered_map<const TensorImpl*, Moments> moments_;
  Locals locals_;
};

constexpr int64_t kForeachChunk = 65536;  // kChunkSize of ForeachFunctors / MultiTensorApply.cuh

}  // namespace

bool Decays(std::string_view name, int rank) {
  // Norms and their like have one dimension; the patterns are "bias", "layernorm", "rmsnorm" and a
  // part of the path that is "norm" or ends with "_norm".
  if (rank < 2) return false;
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* pattern : {"bias", "layernorm", "rmsnorm"}) {
    if (lower.find(pattern) != std::string::npos) return false;
  }
  const std::string dotted = "." + lower + ".";
  return dotted.find(".norm.") == std::string::npos && dotted.find("_norm.") == std::string::npos;
}

std::vector<OptimizerParameter> OptimizerParameters(const Weights& weights) {
  std::vector<OptimizerParameter> parameters;
  for (size_t i = 0; i < weights.parameters().size(); ++i) {
    const Tensor& tensor = weights.parameters()[i];
    const std::string& name = weights.parameter_names()[i];
    parameters.push_back(
        {tensor, Decays(name, tensor.rank()), tensor.rank() == 2 && IsEmbeddingWeight(name)});
  }
  return parameters;
}

Optimizer::Optimizer(Runtime& runtime, const std::vector<OptimizerParameter>& parameters)
    : runtime_(runtime) {
  for (const OptimizerParameter& parameter : parameters) {
    parameters_.push_back(parameter.tensor);
    if (!parameter.tensor.requires_grad()) continue;
    groups_[parameter.decays ? 0 : 1].push_back(parameter.tensor);
  }
}

void Optimizer::Step() {
  const Scoped component(runtime_.component, Component::kTemporaries);
  const Scoped kind(runtime_.kind, Kind::kForeach);
  const Scoped no_grad(runtime_.grad_enabled, false);
  const OpScope op(runtime_, "optimizer.step");
  for (const std::vector<Tensor>& group : groups_) {
    std::vector<Tensor> with_grad;
    for (const Tensor& parameter : group) {
      if (parameter.grad().defined()) with_grad.push_back(parameter);
    }
    if (with_grad.empty()) continue;
    StepGroup(with_grad);
    ReportStep(with_grad);
  }
  EndStep();
}

void Optimizer::ReportStep(const std::vector<Tensor>& parameters) const {
  if (!runtime_.observed()) return;
  double bytes = 0;
  double elements = 0;
  for (const Tensor& parameter : parameters) {
    bytes += BytesOf(parameter);
    elements += static_cast<double>(parameter.numel());
  }
  const ElementWork work = element_work();
  runtime_.ReportOp("optimizer.step",
                    {OpClass::kElementwise, work.flops * elements, work.reads * bytes,
                     work.writes * bytes, parameters.front().dtype()});
}

void Optimizer::ZeroGrad() {
  for (const Tensor& parameter : parameters_) parameter.grad() = Tensor();
}

void Optimizer::JoinGroups() {
  groups_[1].clear();
  groups_[0].clear();
  for (const Tensor& parameter : parameters_) {
    if (parameter.requires_grad()) groups_[0].push_back(parameter);
  }
}

std::unique_ptr<Optimizer> MakeOptimizer(Optim optim, Runtime& runtime,
                                         const std::vector<OptimizerParameter>& parameters,
                                         ParameterGroups groups) {
  std::unique_ptr<Optimizer> optimizer;
  switch (optim) {
    case Optim::kAdamWTorch:
    case Optim::kAdam:
      optimizer = std::make_unique<Adam>(runtime, parameters, false);
      break;
    case Optim::kAdamWTorchFused:
      optimizer = std::make_unique<Adam>(runtime, parameters, true);
      break;
    case Optim::kSgd:
      optimizer = std::make_unique<Sgd>(runtime, parameters);
      break;
    case Optim::kAdafactor:
      optimizer = std::make_unique<Adafactor>(runtime, parameters);
      break;
    case Optim::kAdagrad:
      optimizer = std::make_unique<Adagrad>(runtime, parameters);
      break;
    case Optim::kRmsprop:
      optimizer = std::make_unique<RmsProp>(runtime, parameters);
      break;
    default:
      optimizer = MakeBitsAndBytesOptimizer(optim, runtime, parameters);
      break;
  }
  if (groups == ParameterGroups::kOne) optimizer->JoinGroups();
  return optimizer;
}

Tensor ClipGradNorm(Runtime& runtime, const std::vector<Tensor>& parameters) {
  const Scoped component(runtime.component, Component::kTemporaries);
  const Scoped kind(runtime.kind, Kind::kForeach);
  const Scoped no_grad(runtime.grad_enabled, false);
  const OpScope op(runtime, "clip_grad_norm_");
  std::vector<Tensor> grads;
  int64_t most_chunks = 0;
  for (const Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    grads.push_back(parameter.grad());
    most_chunks = std::max(most_chunks, (parameter.numel() + kForeachChunk - 1) / kForeachChunk);
  }
  if (grads.empty()) return Tensor();
  Tensor total;
  {
    // _foreach_norm: the partial norms of every chunk, then one scalar a tensor.
    std::vector<Tensor> norms;
    {
      const int64_t count = static_cast<int64_t>(grads.size());
      const Ref<Storage> partial = runtime.Scratch(count * most_chunks * 4);
      for (const Tensor& grad : grads) norms.push_back(Empty(runtime, {}, grad.dtype()));
    }
    const Tensor stacked = Empty(runtime, {static_cast<int64_t>(norms.size())}, norms[0].dtype());
    total = Empty(runtime, {}, stacked.dtype());
  }
  // _clip_grads_with_norm_: max_norm / (total_norm + 1e-6), clamped to 1.
  Tensor coefficient;
  {
    const Tensor sum = AddScalar(total);
    const Tensor reciprocal = DivScalar(sum);
    coefficient = MulScalar(reciprocal);
  }
  const Tensor clamped = MulScalar(coefficient);
  double bytes = 0;
  double elements = 0;
  for (const Tensor& grad : grads) {
    bytes += BytesOf(grad);
    elements += static_cast<double>(grad.numel());
  }
  const DType dtype = grads.front().dtype();
  runtime.ReportOp("aten::_foreach_norm", {OpClass::kNormalization, 2 * elements, bytes, 0, dtype});
  runtime.ReportOp("aten::_foreach_mul_", {OpClass::kElementwise, elements, bytes, bytes, dtype});
  return total;
}

}  // namespace headroom::predict
