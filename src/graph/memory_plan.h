// SPDX-License-Identifier: Apache-2.0
//
// MemoryPlan: where every tensor of a graph lies in one arena.
//
//   0        shared                                                        size
//   │ weights │ masters │ gradients │ optimizer │ buffers │ inputs, activations, temporaries │
//
// Persistent tensors come first, in an order that the batch's shape does not change: graphs of the
// same model for other lengths, or for evaluation, use the same bytes for them. The rest is planned
// by lifetime. The ledger of a plan is what executing it allocates: its peak is the bytes alive,
// its reserved total the arena.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "graph/graph.h"
#include "ledger/ledger.h"

namespace headroom::graph {

struct MemoryPlan {
  std::vector<Bytes> offsets;  // by tensor, views too; meaningless for tensors that no op uses
  Bytes shared;                // of the persistent tensors
  Bytes size;                  // of the arena
  Bytes lower_bound;           // most bytes alive at once; no arena can be smaller

  // size / lower_bound
  double Ratio() const;
};

MemoryPlan PlanMemory(const Graph& graph);

// The plan of another graph of the same model: its persistent tensors lie where `owner` has the
// tensors of the same roles and names, and everything else behind all of the owner's.
// REQUIRES: the owner has them, in the same sizes.
MemoryPlan PlanMemoryBeside(const Graph& graph, const Graph& owner, const MemoryPlan& owner_plan);

// Proves that no two tensors that are alive together overlap, and that all lie inside.
Status CheckMemory(const Graph& graph, const MemoryPlan& plan);

// The events of one optimizer step of one micro-step, with the marks of hf_memory.jsonl.
Ledger LedgerOf(const Graph& graph, const MemoryPlan& plan);

}  // namespace headroom::graph
