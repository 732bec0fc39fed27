// SPDX-License-Identifier: Apache-2.0
#include "engine/host_device.h"

#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"

namespace headroom::engine {
namespace {

using graph::Phase;
using graph::TensorId;

class HostDeviceExecutor : public DeviceExecutor {
 public:
  HostDeviceExecutor(const graph::Graph& graph, const graph::MemoryPlan& plan,
                     std::span<std::byte> arena)
      : arena_(arena), executor_(graph, plan, arena) {}

  void Tune() override {}
  void Run(Section section, const StepScalars& scalars) override {
    if (section == Section::kOptimizer) return executor_.Run(Phase::kOptimizer, scalars);
    executor_.Run(Phase::kForward, scalars);
    if (section == Section::kMicroStep) executor_.Run(Phase::kBackward, scalars);
  }
  void Upload(TensorId id, const std::byte* from) override {
    std::memcpy(executor_.View(id).data, from, SizeOfTensor(id));
  }
  void Download(TensorId id, std::byte* to) const override {
    std::memcpy(to, executor_.View(id).data, SizeOfTensor(id));
  }
  void Zero(TensorId id) override { std::memset(executor_.View(id).data, 0, SizeOfTensor(id)); }
  void UploadArena(const std::byte* from, Bytes bytes) override {
    std::memcpy(arena_.data(), from, static_cast<size_t>(bytes.count()));
  }
  void DownloadArena(std::byte* to, Bytes bytes) const override {
    std::memcpy(to, arena_.data(), static_cast<size_t>(bytes.count()));
  }

 private:
  size_t SizeOfTensor(TensorId id) const {
    return static_cast<size_t>(SizeOf(executor_.graph().tensor(id)).count());
  }

  std::span<std::byte> arena_;
  Executor executor_;
};

}  // namespace

Status HostDevice::Allocate(Bytes size) {
  HEADROOM_ASSIGN_OR_RETURN(arena_, HostArena::Create(size));
  return {};
}

std::unique_ptr<DeviceExecutor> HostDevice::NewExecutor(const graph::Graph& graph,
                                                        const graph::MemoryPlan& plan) {
  return std::make_unique<HostDeviceExecutor>(graph, plan, arena_.bytes());
}

Status HostDevice::UseAlgorithms(std::string_view text) {
  HEADROOM_CHECK(arena_.bytes().empty(), "algorithms for a device that has an arena");
  if (!text.starts_with(kind_)) {
    return Error::BadInput("they are of \"" + std::string(text) + "\", and this is " + kind_);
  }
  algorithms_ = text;
  return {};
}

}  // namespace headroom::engine
