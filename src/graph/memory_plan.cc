// SPDX-License-Identifier: Apache-2.0
#include "graph/memory_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "graph/arena.h"
#include "graph/lifetimes.h"

namespace headroom::graph {
namespace {

constexpr std::array<Role, 5> kPersistentRoles = {Role::kWeight, Role::kMaster, Role::kGradient,
                                                  Role::kOptimizer, Role::kBuffer};

Bytes Rounded(const Tensor& tensor) { return RoundUp(SizeOf(tensor), kArenaAlignment); }

// The tensors that the planner places by lifetime, and their buffers.
struct Transients {
  std::vector<size_t> tensors;
  std::vector<Buffer> buffers;
};

Transients TransientsOf(const Graph& graph) {
  Transients result;
  const std::vector<Lifetime> lifetimes = LifetimesOf(graph);
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (tensor.base || IsPersistent(tensor.role) || !lifetimes[i].used()) continue;
    result.tensors.push_back(i);
    result.buffers.push_back({SizeOf(tensor), lifetimes[i].first, lifetimes[i].last});
  }
  return result;
}

class LedgerBuilder {
 public:
  LedgerBuilder(const Graph& graph, const MemoryPlan& plan) : graph_(graph) {
    blocks_.resize(graph.tensors().size());
    ledger_.ChangeReserved(plan.size);
  }

  Ledger Run() {
    for (const Role role : kPersistentRoles) {
      for (size_t i = 0; i < graph_.tensors().size(); ++i) {
        const Tensor& tensor = graph_.tensors()[i];
        if (!tensor.base && tensor.role == role) Alloc(i, "");
      }
    }
    ledger_.Mark("train_begin", 0);
    const Transients transients = TransientsOf(graph_);
    const auto ops = graph_.ops();
    std::vector<std::vector<size_t>> begin(ops.size() + 1);
    std::vector<std::vector<size_t>> end(ops.size() + 1);
    for (size_t i = 0; i < transients.tensors.size(); ++i) {
      const auto first = static_cast<size_t>(transients.buffers[i].first);
      const std::vector<TensorId>& scratch = ops[first].scratch;
      const bool last = std::find(scratch.begin(), scratch.end(),
                                  static_cast<TensorId>(transients.tensors[i])) != scratch.end();
      // A peak is named after what came last: the op's own scratch.
      begin[first].insert(last ? begin[first].end() : begin[first].begin(), transients.tensors[i]);
      end[static_cast<size_t>(transients.buffers[i].last)].push_back(transients.tensors[i]);
    }
    for (size_t i = 0; i < ops.size(); ++i) {
      for (const size_t tensor : begin[i]) Alloc(tensor, Name(ops[i].kind));
      for (const size_t tensor : end[i]) ledger_.Free(blocks_[tensor]);
      if (i + 1 == ops.size() || ops[i + 1].phase != ops[i].phase) MarkEnd(ops[i].phase);
    }
    ledger_.Mark("step_end", 1);
    return std::move(ledger_);
  }

 private:
  void Alloc(size_t index, std::string_view op) {
    const Tensor& tensor = graph_.tensors()[index];
    blocks_[index] = ledger_.Alloc(Rounded(tensor), ComponentOf(tensor.role), tensor.kind,
                                   ledger_.InternModule(tensor.module), ledger_.InternOp(op));
  }

  void MarkEnd(Phase phase) { ledger_.Mark(std::string(Name(phase)) + "_end", 1); }

  const Graph& graph_;
  std::vector<BlockId> blocks_;
  Ledger ledger_;
};

// Completes a plan whose persistent tensors have their places.
void PlaceTransients(const Graph& graph, MemoryPlan& plan) {
  const Transients transients = TransientsOf(graph);
  const ArenaPlan arena = PlanArena(transients.buffers);
  for (size_t i = 0; i < transients.tensors.size(); ++i) {
    plan.offsets[transients.tensors[i]] = plan.shared + arena.offsets[i];
  }
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (!tensor.base) continue;
    plan.offsets[i] =
        plan.offsets[Index(*tensor.base)] + Bytes(tensor.base_offset * ElementSize(tensor.dtype));
  }
  plan.size = plan.shared + arena.size;
  plan.lower_bound = plan.shared + arena.lower_bound;
}

}  // namespace

double MemoryPlan::Ratio() const {
  return lower_bound.count() == 0
             ? 1.0
             : static_cast<double>(size.count()) / static_cast<double>(lower_bound.count());
}

MemoryPlan PlanMemory(const Graph& graph) {
  MemoryPlan plan;
  plan.offsets.resize(graph.tensors().size());
  for (const Role role : kPersistentRoles) {
    for (size_t i = 0; i < graph.tensors().size(); ++i) {
      const Tensor& tensor = graph.tensors()[i];
      if (tensor.base || tensor.role != role) continue;
      plan.offsets[i] = plan.shared;
      plan.shared += Rounded(tensor);
    }
  }
  PlaceTransients(graph, plan);
  return plan;
}

MemoryPlan PlanMemoryBeside(const Graph& graph, const Graph& owner, const MemoryPlan& owner_plan) {
  std::map<std::pair<Role, std::string_view>, size_t> places;
  for (size_t i = 0; i < owner.tensors().size(); ++i) {
    const Tensor& tensor = owner.tensors()[i];
    if (!tensor.base && IsPersistent(tensor.role)) places[{tensor.role, tensor.name}] = i;
  }
  MemoryPlan plan;
  plan.offsets.resize(graph.tensors().size());
  plan.shared = owner_plan.shared;
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (tensor.base || !IsPersistent(tensor.role)) continue;
    const auto place = places.find({tensor.role, tensor.name});
    HEADROOM_CHECK(
        place != places.end() && SizeOf(owner.tensors()[place->second]) == SizeOf(tensor),
        "graphs that do not share " + tensor.name);
    plan.offsets[i] = owner_plan.offsets[place->second];
  }
  PlaceTransients(graph, plan);
  return plan;
}

Status CheckMemory(const Graph& graph, const MemoryPlan& plan) {
  std::vector<Buffer> buffers;
  ArenaPlan arena;
  arena.size = plan.size;
  std::vector<size_t> tensors;
  const std::vector<Lifetime> lifetimes = LifetimesOf(graph);
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (tensor.base || !lifetimes[i].used()) continue;
    buffers.push_back({SizeOf(tensor), lifetimes[i].first, lifetimes[i].last});
    arena.offsets.push_back(plan.offsets[i]);
    tensors.push_back(i);
  }
  HEADROOM_RETURN_IF_ERROR(CheckArena(buffers, arena));
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (!tensor.base) continue;
    const Bytes root = plan.offsets[Index(*tensor.base)];
    const Bytes end = plan.offsets[i] + SizeOf(tensor);
    if (plan.offsets[i] < root || end > root + SizeOf(graph.tensor(*tensor.base))) {
      return Error::Internal(Format("{} does not lie in its tensor", tensor.name));
    }
  }
  return {};
}

Ledger LedgerOf(const Graph& graph, const MemoryPlan& plan) {
  return LedgerBuilder(graph, plan).Run();
}

}  // namespace headroom::graph
