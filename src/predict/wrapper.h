// SPDX-License-Identifier: Apache-2.0
//
// Wrapper: what accelerate puts around a model that trains on several GPUs.
//
// A wrapper decides which tensors the optimizer steps (all parameters, or this rank's shares), and
// hooks into the run: FSDP gathers a unit's parameters when its forward begins, which it learns as
// the runtime's observer.
//
//   forward of layer 3:   EnterForward(model.layers.3) -> gather | … | LeaveForward -> free
//   backward of layer 3:  BeforeNode(model.layers.3)   -> gather | … | BeforeNode(model.layers.2)
//                                                                     -> free, reduce the gradients
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/recipe.h"
#include "predict/model.h"
#include "predict/runtime.h"

namespace headroom::predict {

class Wrapper : public RunObserver {
 public:
  // What the optimizer steps.
  virtual const std::vector<Tensor>& optimizer_parameters() const = 0;
  // Whether the forward runs in autocast, its outputs converted to fp32
  // (Accelerator.prepare_model).
  virtual bool uses_autocast() const { return true; }

  // Around model(**inputs).
  virtual void BeginForward() {}
  virtual void EndForward(ModelOutput& /*outputs*/) {}
  // Around loss.backward(). `sync` is false in micro-batches whose gradients only accumulate.
  virtual void BeginBackward(bool /*sync*/) {}
  virtual void EndBackward() {}
  // Before and after optimizer.step().
  virtual void BeginStep() {}
  virtual void EndStep() {}

  void EnterForward(ModuleId) override {}
  void LeaveForward(ModuleId) override {}
  void BeforeNode(ModuleId) override {}
};

// How a recipe's parameters are stored while no forward or backward needs them.
struct ShardLayout {
  int64_t ranks = 1;
  bool sharded = false;  // whole parameters exist only while a unit runs
  DType whole_dtype = DType::kFloat32;
};
ShardLayout LayoutOf(const Recipe& recipe);

// Wraps a model whose weights lie as LayoutOf says; null for a run of one process. Allocates what
// wrapping allocates.
std::unique_ptr<Wrapper> MakeWrapper(Runtime& runtime, const Recipe& recipe,
                                     const Weights& weights);

}  // namespace headroom::predict
