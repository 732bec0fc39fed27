// SPDX-License-Identifier: Apache-2.0
//
// Device: where a planned graph runs when that is not the CPU. A backend implements it; the engine
// knows no other.
//
// The host keeps an arena of the same plan as a mirror: weights are initialised, loaded and saved
// there, inputs are filled there, and what a step yields is copied back there. Only the persistent
// part of it is ever touched, and only then takes memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/op_call.h"
#include "graph/graph.h"
#include "graph/memory_plan.h"

namespace headroom::engine {

// A part of the list that is started as one.
enum class Section : uint8_t { kForward, kMicroStep, kOptimizer };

// Runs one graph. What is started runs in its order, copies too.
class DeviceExecutor {
 public:
  virtual ~DeviceExecutor() = default;

  // Chooses algorithms by running zeroes. REQUIRES: nothing is in the arena yet.
  virtual void Tune() = 0;
  // Starts a section. The scalars are copied.
  virtual void Run(Section section, const StepScalars& scalars) = 0;
  // Of a whole tensor. Download waits.
  virtual void Upload(graph::TensorId id, const std::byte* from) = 0;
  virtual void Download(graph::TensorId id, std::byte* to) const = 0;
  virtual void Zero(graph::TensorId id) = 0;
  // The first `bytes` of the arena; both wait.
  virtual void UploadArena(const std::byte* from, Bytes bytes) = 0;
  virtual void DownloadArena(std::byte* to, Bytes bytes) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const std::string& name() const = 0;  // "NVIDIA H200"
  // The arena, zeroed. Fails with what is missing. REQUIRES: called once.
  virtual Status Allocate(Bytes size) = 0;
  // REQUIRES: Allocate() succeeded; the graph was planned for this device and outlives the result,
  // as the device does.
  virtual std::unique_ptr<DeviceExecutor> NewExecutor(const graph::Graph& graph,
                                                      const graph::MemoryPlan& plan) = 0;
  // Waits for all that was started; fails with what went wrong since the last time.
  virtual Status Synchronize() const = 0;

  // By which algorithms matrices are multiplied, as UseAlgorithms() of a later run takes them to
  // repeat this one to the bit. Empty where there is no choice.
  virtual std::string Algorithms() const { return {}; }
  // Multiplies by these from now on. Fails, and changes nothing, where they are of another kind of
  // device or no text of Algorithms(), with one line that says which. REQUIRES: called before
  // Allocate().
  virtual Status UseAlgorithms(std::string_view) {
    return Error::Unsupported("this device has no choice of algorithms");
  }
};

}  // namespace headroom::engine
