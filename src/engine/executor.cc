// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.h"

#include <sys/mman.h>

#include <cstring>

#include "base/check.h"
#include "base/format.h"
#include "engine/cpu/cpu_ops.h"
#include "graph/lifetimes.h"

namespace headroom::engine {

using graph::Graph;
using graph::Op;
using graph::TensorId;

void HostArena::Unmap::operator()(std::byte* data) const { munmap(data, size); }

Result<HostArena> HostArena::Create(Bytes size) {
  HostArena arena;
  arena.size_ = static_cast<size_t>(size.count());
  const size_t mapped = arena.size_ == 0 ? 1 : arena.size_;
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Error::Internal(Format("the system has no {} for the arena", FormatBytes(size)));
  }
  madvise(data, mapped, MADV_HUGEPAGE);
  arena.data_ = std::unique_ptr<std::byte, Unmap>(static_cast<std::byte*>(data), Unmap{mapped});
  return arena;
}

Executor::Executor(const Graph& graph, const graph::MemoryPlan& plan, std::span<std::byte> arena)
    : graph_(&graph) {
  HEADROOM_CHECK(plan.size.count() <= static_cast<int64_t>(arena.size()),
                 "an arena smaller than its plan");
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const graph::Tensor& tensor = graph.tensors()[i];
    views_.push_back({.data = arena.data() + plan.offsets[i].count(),
                      .dtype = tensor.dtype,
                      .shape = tensor.shape,
                      .row_stride = tensor.row_stride});
  }
  const auto views = [&](const std::vector<TensorId>& operands) {
    std::vector<TensorView> result;
    for (const TensorId id : operands) {
      result.push_back(id == graph::kNoTensor ? TensorView{} : View(id));
    }
    return result;
  };
  for (const Op& op : graph.ops()) {
    calls_.push_back({views(op.inputs), views(op.outputs), views(op.scratch)});
  }
}

void Executor::Run(graph::Phase phase, const StepScalars& scalars) const {
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (graph_->ops()[i].phase == phase) RunOps(i, i + 1, scalars);
  }
}

void Executor::RunOps(size_t first, size_t last, const StepScalars& scalars) const {
  for (size_t i = first; i < last; ++i) {
    const Op& op = graph_->ops()[i];
    const Call& call = calls_[i];
    cpu::RunCpuOp({.kind = op.kind,
                   .attributes = op.attributes,
                   .inputs = call.inputs,
                   .outputs = call.outputs,
                   .scratch = call.scratch,
                   .step = scalars});
  }
}

void Executor::Poison(size_t op) const {
  const auto lifetimes = graph::LifetimesOf(*graph_);
  const auto position = static_cast<int32_t>(op);
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const graph::Tensor& tensor = graph_->tensors()[i];
    if (tensor.base || lifetimes[i].first != position) continue;
    if (tensor.role != graph::Role::kActivation && tensor.role != graph::Role::kTemporary) continue;
    std::memset(views_[i].data, 0xff, static_cast<size_t>(SizeOf(tensor).count()));
  }
}

}  // namespace headroom::engine
