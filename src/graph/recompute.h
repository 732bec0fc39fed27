// SPDX-License-Identifier: Apache-2.0
//
// Recomputer: the tensor that a backward op reads in place of one of the forward pass.
//
// Where the policy keeps the forward tensor, it is that tensor; else forward ops are appended once
// more, writing to new tensors, and it is theirs.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "graph/gradients.h"
#include "graph/graph.h"

namespace headroom::graph {

class Recomputer {
 public:
  // REQUIRES: `graph` holds the forward pass alone.
  Recomputer(Graph& graph, Recompute policy);

  // To be told of each forward op before its gradient is appended: a layer's first, from the end,
  // is where the layer runs again.
  void Enter(const Op& op);

  TensorId Saved(TensorId id);

 private:
  struct Uses {
    int producer = -1;     // position of the op that writes it
    bool outside = false;  // an op of another layer reads it
  };

  void FindUses();
  bool KeptAcrossLayers(TensorId id) const;
  bool IsNormOutput(const Op& op, TensorId id) const;
  // A norm's output whose input other layers read: the input is kept, this computed again.
  bool IsBesideKept(const Op& op, TensorId id) const;
  TensorId Again(const Op& op, TensorId id);  // of a cheap op
  void RunLayerAgain(int layer);
  TensorId Copy(TensorId id);
  TensorId InputOfCopy(TensorId id);

  Graph& graph_;
  Recompute policy_;
  size_t forward_ops_;
  std::vector<Uses> uses_;                         // by tensor
  std::unordered_map<uint32_t, TensorId> copies_;  // of the forward tensors, views too
  int layer_ = -1;
};

// Removes ops nothing of which is read later, nor kept, nor persistent.
void RemoveDeadOps(Graph& graph);

}  // namespace headroom::graph
