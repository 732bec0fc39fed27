// SPDX-License-Identifier: Apache-2.0
//
// AttentionPlans: which attention ops of a graph a library runs, decided before the first step.
//
// With dropout, ops of one stream share a mask: the forward pass, its recomputation and the
// backward pass. So the library runs all of them or none.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/cuda/cuda_ops.h"
#include "engine/cuda/cudnn_attention.h"
#include "graph/graph.h"

namespace headroom::engine::cuda {

class AttentionPlans {
 public:
  // The op at a position, with its operands.
  using CallOf = std::function<OpCall(size_t op, const StepScalars& step)>;

  // Without a library every op is for the own kernels.
  AttentionPlans(AttentionLibrary* library, const graph::Graph& graph, const CallOf& call_of);
  ~AttentionPlans();
  AttentionPlans(const AttentionPlans&) = delete;
  AttentionPlans& operator=(const AttentionPlans&) = delete;

  // No plan: the own kernels run it.
  AttentionLaunch Of(size_t op, bool training) const;
  // Seeds of a micro-step's dropout, from the scalars in device memory. To be started before it.
  void SetSeeds(const StepScalars* scalars, cudaStream_t stream) const;

  // "24 of 24 ops by cuDNN 9.19.0, workspace 33.1 of 33.3 MiB", and a line for each refusal.
  std::string Describe() const;

 private:
  struct Choice {
    size_t op = 0;
    bool backward = false;
    const AttentionPlan* training = nullptr;
    const AttentionPlan* evaluation = nullptr;
    int64_t workspace = 0;  // of the plan of memory
    size_t first_seed = 0;
    std::string refusal = {};
  };
  void MakeSeeds(const graph::Graph& graph);
  void AgreeOnMasks(const graph::Graph& graph);

  AttentionLibrary* library_;
  std::vector<Choice> choices_;
  std::vector<int> choice_of_;  // by op; -1: no attention
  SeedRequest* requests_ = nullptr;
  int64_t request_count_ = 0;
  int64_t* seeds_ = nullptr;
};

}  // namespace headroom::engine::cuda
