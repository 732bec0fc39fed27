// SPDX-License-Identifier: Apache-2.0
#include "engine/native_step.h"

#include <utility>

#include "engine/cuda/workspace.h"
#include "graph/precision.h"
#include "graph/reuse.h"
#include "graph/verify.h"

namespace headroom::engine {
namespace {

DType StorageOf(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return DType::kBFloat16;
    case Precision::kFp16:
      return DType::kFloat16;
    case Precision::kFp32:
    case Precision::kTf32:
      return DType::kFloat32;
  }
  return DType::kFloat32;
}

Result<ModelGraph> TrainingGraph(const ModelConfig& config, const NativeOptions& options) {
  HEADROOM_ASSIGN_OR_RETURN(ModelGraph model, BuildModelGraph(config, options.model));
  const DType storage = StorageOf(options.precision);
  LowerPrecision(model.graph, storage, !options.lean);
  const bool accumulates = options.gradient_accumulation_steps > 1;
  AppendBackward(model.graph, {.recompute = options.recompute,
                               .weight_gradients = accumulates ? DType::kFloat32 : storage,
                               .accumulates = accumulates});
  AppendOptimizer(model.graph, options.optimizer);
  ReuseInputs(model.graph);
  HEADROOM_RETURN_IF_ERROR(Verify(model.graph));
  if (options.cuda) cuda::AddWorkspaces(model.graph);
  return model;
}

Result<ModelGraph> ForwardGraph(const ModelConfig& config, const NativeOptions& options) {
  ModelGraphOptions forward = options.model;
  forward.dropout = false;
  HEADROOM_ASSIGN_OR_RETURN(ModelGraph model, BuildModelGraph(config, forward));
  LowerPrecision(model.graph, StorageOf(options.precision), false);
  ReuseInputs(model.graph);
  HEADROOM_RETURN_IF_ERROR(Verify(model.graph));
  if (options.cuda) cuda::AddWorkspaces(model.graph);
  return model;
}

Result<NativeStep> Planned(ModelGraph model, const NativeStep* owner) {
  NativeStep step{.model = std::move(model), .plan = {}};
  step.plan = owner == nullptr
                  ? PlanMemory(step.model.graph)
                  : PlanMemoryBeside(step.model.graph, owner->model.graph, owner->plan);
  HEADROOM_RETURN_IF_ERROR(CheckMemory(step.model.graph, step.plan));
  return step;
}

}  // namespace

Result<NativeStep> PlanTrainingStep(const ModelConfig& config, const NativeOptions& options) {
  HEADROOM_ASSIGN_OR_RETURN(ModelGraph model, TrainingGraph(config, options));
  return Planned(std::move(model), nullptr);
}

Result<NativeStep> PlanTrainingStepBeside(const ModelConfig& config, const NativeOptions& options,
                                          const NativeStep& owner) {
  HEADROOM_ASSIGN_OR_RETURN(ModelGraph model, TrainingGraph(config, options));
  return Planned(std::move(model), &owner);
}

Result<NativeStep> PlanForwardBeside(const ModelConfig& config, const NativeOptions& options,
                                     const NativeStep& owner) {
  HEADROOM_ASSIGN_OR_RETURN(ModelGraph model, ForwardGraph(config, options));
  return Planned(std::move(model), &owner);
}

Result<NativeStep> PlanForward(const ModelConfig& config, const NativeOptions& options) {
  HEADROOM_ASSIGN_OR_RETURN(ModelGraph model, ForwardGraph(config, options));
  return Planned(std::move(model), nullptr);
}

}  // namespace headroom::engine
