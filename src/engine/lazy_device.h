// SPDX-License-Identifier: Apache-2.0
//
// For tests: a Device that does nothing until it is waited for, and then no more than what was
// waited for. Its ops are the CPU's. What a run reads too early or writes over too soon shows: a
// result is not a number until its copy ran, and an upload whose bytes changed on the way is
// counted.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/device.h"
#include "engine/executor.h"

namespace headroom::engine {

class LazyDevice : public Device {
 public:
  // `kind` is what Algorithms() begins with: those of another kind are refused.
  explicit LazyDevice(std::string kind = "a lazy device")
      : kind_(std::move(kind)), algorithms_(kind_ + ": tuned") {}

  const std::string& name() const override { return kind_; }
  Bytes free_memory() const override { return GiB(1); }
  Status Allocate(Bytes size) override;
  std::unique_ptr<DeviceExecutor> NewExecutor(const graph::Graph& graph,
                                              const graph::MemoryPlan& plan) override;
  Result<std::span<std::byte>> AllocateHost(Bytes size) override;
  void Mark(int mark) override;
  Status Await(int mark) const override;
  Status Synchronize() const override;
  std::string Algorithms() const override { return algorithms_; }
  Status UseAlgorithms(std::string_view text) override;

  void set_algorithms(std::string algorithms) { algorithms_ = std::move(algorithms); }
  // Uploads that read other bytes than they were started with.
  int changed_uploads() const { return changed_uploads_; }
  // The most updates that were started and not done when a wait was over.
  int most_ahead() const { return most_ahead_; }

 private:
  friend class LazyExecutor;
  struct Command {
    std::function<void()> run;
    int mark = -1;
    bool update = false;
  };
  void RunFirst(size_t count) const;

  std::string kind_;
  std::string algorithms_;
  HostArena arena_;
  std::vector<std::vector<std::byte>> host_;
  mutable std::deque<Command> commands_;
  int changed_uploads_ = 0;
  mutable int most_ahead_ = 0;
  bool halted_ = false;  // of StepScalars.halt
};

}  // namespace headroom::engine
