// SPDX-License-Identifier: Apache-2.0
//
// Executor: runs the ops of a planned graph in an arena, on the CPU.
//
//   HostArena arena(plan.size);
//   Executor executor(graph, plan, arena.bytes());
//   executor.Run(graph::Phase::kForward, scalars);
//
// Addresses are worked out once; running allocates nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/op_call.h"
#include "graph/graph.h"
#include "graph/memory_plan.h"

namespace headroom::engine {

// One block of zeroes, aligned to a page. All memory of a run's tensors.
class HostArena {
 public:
  // Fails when the system does not have that much.
  static Result<HostArena> Create(Bytes size);

  std::span<std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  struct Unmap {
    size_t size;
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Unmap> data_{nullptr, Unmap{0}};
  size_t size_ = 0;
};

class Executor {
 public:
  // REQUIRES: the graph outlives it, and the arena has the plan's size.
  Executor(const graph::Graph& graph, const graph::MemoryPlan& plan, std::span<std::byte> arena);

  // All ops of the phase, in their order.
  void Run(graph::Phase phase, const StepScalars& scalars) const;
  // Ops [first, last) by position.
  void RunOps(size_t first, size_t last, const StepScalars& scalars) const;

  // Where a tensor lies.
  const TensorView& View(graph::TensorId id) const { return views_[graph::Index(id)]; }
  const graph::Graph& graph() const { return *graph_; }

  // Fills everything that the op at this position may not rely on with bytes that are not a
  // number: for tests, which then see what reads too early or too late.
  void Poison(size_t op) const;

 private:
  struct Call {
    std::vector<TensorView> inputs;
    std::vector<TensorView> outputs;
    std::vector<TensorView> scratch;
  };

  const graph::Graph* graph_;
  std::vector<TensorView> views_;  // by tensor
  std::vector<Call> calls_;        // by op
};

}  // namespace headroom::engine
