// SPDX-License-Identifier: Apache-2.0
//
// Optimizers as Trainer creates them: their states, and the temporaries of one step.
//
// States are allocated when PyTorch allocates them: most at the first step, Adagrad's at once. The
// multi-tensor ("foreach") forms hold a temporary the size of all parameters of a group while they
// run; the fused form holds none.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/recipe.h"
#include "predict/tensor.h"

namespace headroom::predict {

class Runtime;
class Weights;

// A parameter as an optimizer sees it.
struct OptimizerParameter {
  Tensor tensor;
  bool decays = true;         // Trainer.get_decay_parameter_names
  bool is_embedding = false;  // nn.Embedding's, whose states bitsandbytes keeps in 32 bit
};
// All parameters of a model, in the order of named_parameters().
std::vector<OptimizerParameter> OptimizerParameters(const Weights& weights);

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One step over the parameters that have a gradient.
  void Step();
  // optimizer.zero_grad(set_to_none=True)
  void ZeroGrad();
  // The fused forms take GradScaler's found_inf themselves.
  virtual bool is_fused() const { return false; }

  const std::vector<Tensor>& parameters() const { return parameters_; }
  // Puts all parameters into one group, in their order. REQUIRES: no step has been made.
  void JoinGroups();

 protected:
  Optimizer(Runtime& runtime, const std::vector<OptimizerParameter>& parameters);
  // One step over the parameters of one group that have a gradient.
  virtual void StepGroup(const std::vector<Tensor>& parameters) = 0;
  // What one step moves and computes for an element of a parameter, in elements; of steps that are
  // not written in the ops that tell it themselves.
  struct ElementWork {
    double reads = 0;
    double writes = 0;
    double flops = 0;
  };
  virtual ElementWork element_work() const { return {}; }
  // The end of step(): Python drops its locals.
  virtual void EndStep() {}

  // Tells the observer of one kernel over all of `parameters`.
  void ReportStep(const std::vector<Tensor>& parameters) const;

  Runtime& runtime_;
  // Trainer.create_optimizer: parameters that decay, then those that do not.
  std::vector<Tensor> groups_[2];

 private:
  std::vector<Tensor> parameters_;
};

// Trainer makes two groups, of what decays and what does not; model.parameters() alone are one.
enum class ParameterGroups { kByDecay, kOne };

// Whether weight decay applies to the parameter `name` of `rank` dimensions.
bool Decays(std::string_view name, int rank);

std::unique_ptr<Optimizer> MakeOptimizer(Optim optim, Runtime& runtime,
                                         const std::vector<OptimizerParameter>& parameters,
                                         ParameterGroups groups = ParameterGroups::kByDecay);

// torch.nn.utils.clip_grad_norm_ (foreach): returns the total norm, which the caller keeps.
Tensor ClipGradNorm(Runtime& runtime, const std::vector<Tensor>& parameters);

}  // namespace headroom::predict
