// SPDX-License-Identifier: Apache-2.0
//
// For tests: a Device that computes on the CPU, in an arena of its own. What the engine forgets to
// copy to it, or back, is missing there as it is on a GPU.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/device.h"
#include "engine/executor.h"

namespace headroom::engine {

class HostDevice : public Device {
 public:
  // `kind` is what Algorithms() begins with: those of another kind are refused.
  explicit HostDevice(std::string kind) : kind_(std::move(kind)), algorithms_(kind_ + ": tuned") {}

  const std::string& name() const override { return kind_; }
  Status Allocate(Bytes size) override;
  std::unique_ptr<DeviceExecutor> NewExecutor(const graph::Graph& graph,
                                              const graph::MemoryPlan& plan) override;
  Status Synchronize() const override { return {}; }
  std::string Algorithms() const override { return algorithms_; }
  Status UseAlgorithms(std::string_view text) override;

  void set_algorithms(std::string algorithms) { algorithms_ = std::move(algorithms); }

 private:
  std::string kind_;
  std::string algorithms_;
  HostArena arena_;
};

}  // namespace headroom::engine
