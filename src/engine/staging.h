// SPDX-License-Identifier: Apache-2.0
//
// Staging: what passes between the host and a device that runs behind it, through host memory that
// is locked to its place.
//
//   inputs    two buffers in turn: one is filled while the copy from the other waits its turn
//   results   two in turn: a step's are read when the next step is already started
//
// All of it is allocated before the first step.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "engine/device.h"
#include "engine/executor.h"
#include "engine/step_set.h"

namespace headroom::engine {

// What a step leaves for the host.
struct StepResult {
  float loss = 0;        // the sum over the window's targets
  float squares = 0;     // of the gradients
  float not_finite = 0;  // how many gradients are not
};

class Staging {
 public:
  // Buffers for the largest graph's inputs. REQUIRES: the device outlives this.
  static Result<Staging> Create(const StepSet& steps, Device& device);

  // Starts the copy of a graph's inputs from the host's arena, which may change behind this. Waits
  // while both buffers are under way.
  Status Upload(const Executor& host, DeviceExecutor& executor);

  // Starts the copy of what the step that was started last leaves. REQUIRES: the results of the
  // step before the last were read.
  void DownloadResult(graph::TensorId loss, graph::TensorId norm, DeviceExecutor& executor);
  // Waits for the oldest that was not read. REQUIRES: there is one.
  Result<StepResult> ReadResult();

 private:
  static constexpr int kBuffers = 2;
  // Marks 0 and 1 are the inputs', 2 and 3 the results'.
  static_assert(2 * kBuffers <= Device::kMarks);

  Device* device_ = nullptr;
  std::array<std::span<std::byte>, kBuffers> inputs_;
  std::array<std::span<std::byte>, kBuffers> results_;
  int next_input_ = 0;
  int next_download_ = 0;
  int next_read_ = 0;
};

}  // namespace headroom::engine
