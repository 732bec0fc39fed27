// SPDX-License-Identifier: Apache-2.0
#include "train_memory.h"

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "base/format.h"
#include "graph/arena.h"
#include "graph/graph.h"
#include "ledger/component.h"

namespace headroom::cli {

std::vector<TrainMemoryRow> TrainMemory(const engine::Trainer& trainer,
                                        const ProcessGrowth& growth) {
  const std::span<const std::byte> arena = trainer.plan().arena();
  const auto size = Bytes(static_cast<int64_t>(arena.size()));
  const ResidentPages pages(arena);
  std::array<Bytes, kComponentCount> planned{};
  std::array<Bytes, kComponentCount> touched{};
  const graph::Graph& graph = trainer.plan().executor().graph();
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const graph::Tensor& tensor = graph.tensors()[i];
    if (tensor.base || !graph::IsPersistent(tensor.role)) continue;
    const auto component = static_cast<size_t>(graph::ComponentOf(tensor.role));
    const Bytes offset = trainer.plan().largest().plan.offsets[i];
    const Bytes taken = RoundUp(SizeOf(tensor), graph::kArenaAlignment);
    planned[component] += taken;
    touched[component] += pages.In(offset, taken);
  }
  // Where the arena is not this process's memory, its pages tell nothing.
  const auto counted = [&](Bytes bytes) {
    return pages.known() ? std::optional(bytes) : std::nullopt;
  };
  std::vector<TrainMemoryRow> rows;
  Bytes rest_planned = trainer.plan().arena_size();
  Bytes rest_touched = pages.In(Bytes(0), size);
  for (const Component component :
       {Component::kWeights, Component::kGradients, Component::kOptimizer}) {
    const auto index = static_cast<size_t>(component);
    if (planned[index] == Bytes(0)) continue;
    const std::string name(Name(component));
    rows.push_back({name, name, planned[index], counted(touched[index])});
    rest_planned -= planned[index];
    rest_touched -= touched[index];
  }
  // Gradients of one micro-step come and go as activations do.
  const bool kept = planned[static_cast<size_t>(Component::kGradients)] > Bytes(0);
  const std::string transient = "activations, temporaries, inputs";
  rows.push_back({"transient", kept ? transient : "gradients, " + transient, rest_planned,
                  counted(rest_touched)});
  rows.push_back({"arena", "= arena", trainer.plan().arena_size(), size});
  rows.push_back({"process_growth", "growth of the process", std::nullopt, growth.Peak()});
  return rows;
}

std::vector<TrainMemoryRow> DeviceMemory(const Ledger& plan, const DeviceLadder& ladder) {
  const Bytes arena = plan.peak_reserved();
  const std::optional<Bytes> process = ladder.last();
  const auto beside = process ? std::optional(*process - arena) : std::nullopt;
  return {{"arena", "arena", arena, arena},
          {"context", "context, libraries, graphs", plan.context(), beside},
          {"process", "= process by NVML", arena + plan.context(), process}};
}

}  // namespace headroom::cli
