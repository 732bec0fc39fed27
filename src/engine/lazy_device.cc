// SPDX-License-Identifier: Apache-2.0
#include "engine/lazy_device.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace headroom::engine {

using graph::OpKind;
using graph::Phase;
using graph::TensorId;

class LazyExecutor : public DeviceExecutor {
 public:
  LazyExecutor(LazyDevice& device, const graph::Graph& graph, const graph::MemoryPlan& plan)
      : device_(device), executor_(graph, plan, device.arena_.bytes()) {}

  void Tune() override {}

  void Run(Section section, const StepScalars& scalars) override {
    const auto run = [this, section, scalars] { RunSection(section, scalars); };
    Push({.run = run, .update = section == Section::kOptimizer});
  }

  std::vector<double> Profile(const StepScalars&) override {
    return std::vector<double>(executor_.graph().ops().size());
  }

  void Upload(TensorId id, const std::byte* from) override {
    const std::vector<std::byte> copy(from, from + SizeIn(id));
    Push({.run = [this, id, copy] { std::memcpy(At(id), copy.data(), copy.size()); }});
  }

  void UploadLater(TensorId id, const std::byte* from) override {
    const std::vector<std::byte> copy(from, from + SizeIn(id));
    Push({.run = [this, id, from, copy] {
      if (std::memcmp(from, copy.data(), copy.size()) != 0) ++device_.changed_uploads_;
      std::memcpy(At(id), from, copy.size());
    }});
  }

  void DownloadLater(TensorId id, std::byte* to) const override {
    std::memset(to, 0xff, SizeIn(id));
    Push({.run = [this, id, to] { std::memcpy(to, At(id), SizeIn(id)); }});
  }

  void Download(TensorId id, std::byte* to) const override {
    DownloadLater(id, to);
    static_cast<void>(device_.Synchronize());
  }

  void Zero(TensorId id) override {
    Push({.run = [this, id] { std::memset(At(id), 0, SizeIn(id)); }});
  }

  void UploadArena(const std::byte* from, Bytes bytes) override {
    static_cast<void>(device_.Synchronize());
    std::memcpy(device_.arena_.bytes().data(), from, static_cast<size_t>(bytes.count()));
  }

  void DownloadArena(std::byte* to, Bytes bytes) const override {
    static_cast<void>(device_.Synchronize());
    std::memcpy(to, device_.arena_.bytes().data(), static_cast<size_t>(bytes.count()));
  }

 private:
  size_t SizeIn(TensorId id) const {
    return static_cast<size_t>(SizeOf(executor_.graph().tensor(id)).count());
  }
  std::byte* At(TensorId id) const { return executor_.View(id).data; }
  void Push(LazyDevice::Command command) const { device_.commands_.push_back(std::move(command)); }

  void RunSection(Section section, const StepScalars& scalars) {
    if (section == Section::kOptimizer) return RunOptimizer(scalars);
    executor_.Run(Phase::kForward, scalars);
    if (section == Section::kMicroStep) executor_.Run(Phase::kBackward, scalars);
  }

  void RunOptimizer(const StepScalars& scalars) {
    const graph::Graph& graph = executor_.graph();
    for (size_t i = 0; i < graph.ops().size(); ++i) {
      const graph::Op& op = graph.ops()[i];
      if (op.phase != Phase::kOptimizer) continue;
      if (op.kind == OpKind::kUpdate && scalars.halt) {
        const auto* norm = reinterpret_cast<const float*>(At(op.inputs[0]));
        const auto* loss =
            reinterpret_cast<const float*>(At(graph.Find(graph::Role::kBuffer, "loss")));
        if (norm[1] > 0 || !std::isfinite(*loss)) device_.halted_ = true;
        if (device_.halted_) continue;
      }
      executor_.RunOps(i, i + 1, scalars);
    }
  }

  LazyDevice& device_;
  Executor executor_;
};

Status LazyDevice::Allocate(Bytes size) {
  HEADROOM_ASSIGN_OR_RETURN(arena_, HostArena::Create(size));
  return {};
}

std::unique_ptr<DeviceExecutor> LazyDevice::NewExecutor(const graph::Graph& graph,
                                                        const graph::MemoryPlan& plan) {
  return std::make_unique<LazyExecutor>(*this, graph, plan);
}

Result<std::span<std::byte>> LazyDevice::AllocateHost(Bytes size) {
  return std::span(host_.emplace_back(static_cast<size_t>(size.count())));
}

void LazyDevice::Mark(int mark) {
  commands_.push_back({.run = [] {}, .mark = mark});
}

void LazyDevice::RunFirst(size_t count) const {
  for (; count > 0; --count) {
    const Command command = std::move(commands_.front());
    commands_.pop_front();
    command.run();
  }
  const auto ahead = std::ranges::count_if(commands_, &Command::update);
  most_ahead_ = std::max(most_ahead_, static_cast<int>(ahead));
}

Status LazyDevice::Await(int mark) const {
  size_t count = commands_.size();
  while (count > 0 && commands_[count - 1].mark != mark) --count;
  RunFirst(count);
  return {};
}

Status LazyDevice::UseAlgorithms(std::string_view text) {
  HEADROOM_CHECK(arena_.bytes().empty(), "algorithms for a device that has an arena");
  if (!text.starts_with(kind_)) {
    return Error::BadInput("they are of \"" + std::string(text) + "\", and this is " + kind_);
  }
  algorithms_ = text;
  return {};
}

Status LazyDevice::Synchronize() const {
  RunFirst(commands_.size());
  return {};
}

}  // namespace headroom::engine
