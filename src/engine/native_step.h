// SPDX-License-Identifier: Apache-2.0
//
// NativeStep: a whole training step of the native engine, planned to the byte before it runs.
//
//   NativeStep step = PlanTrainingStep(config, {.model = {…}, .precision = Precision::kBf16});
//   step.plan.size                       // the arena
//   LedgerOf(step.graph(), step.plan)    // what it is made of
#pragma once

#include <optional>

#include "base/result.h"
#include "engine/models/model_graph.h"
#include "graph/gradients.h"
#include "graph/memory_plan.h"
#include "graph/optimizer.h"
#include "model/config.h"
#include "model/recipe.h"

namespace headroom::engine {

struct NativeOptions {
  ModelGraphOptions model;
  // Of storage: bf16 and fp16 keep float32 masters; tf32 is fp32 here.
  Precision precision = Precision::kFp32;
  // 16-bit weights without masters.
  bool lean = false;
  graph::Recompute recompute = graph::Recompute::kNone;
  graph::OptimizerOptions optimizer;
  // Micro-steps of a window: with several, gradients are summed in float32.
  int64_t gradient_accumulation_steps = 1;
  // With the workspaces of the CUDA backend, for which the plan then is.
  bool cuda = false;
};

struct NativeStep {
  ModelGraph model;
  graph::MemoryPlan plan;

  const graph::Graph& graph() const { return model.graph; }
};

// Forward, backward and optimizer, verified and with a proven plan. Fails as BuildModelGraph does.
Result<NativeStep> PlanTrainingStep(const ModelConfig& config, const NativeOptions& options);

// Like it for another batch or length, over the persistent tensors of `owner`.
Result<NativeStep> PlanTrainingStepBeside(const ModelConfig& config, const NativeOptions& options,
                                          const NativeStep& owner);

// A forward pass without dropout and gradients, over the persistent tensors of `owner`.
Result<NativeStep> PlanForwardBeside(const ModelConfig& config, const NativeOptions& options,
                                     const NativeStep& owner);

// A forward pass alone: weights, buffers and what it needs.
Result<NativeStep> PlanForward(const ModelConfig& config, const NativeOptions& options);

}  // namespace headroom::engine
