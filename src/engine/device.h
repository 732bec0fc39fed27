// SPDX-License-Identifier: Apache-2.0
//
// Device: where a planned graph runs when that is not the CPU. A backend implements it; the engine
// knows no other.
//
// The host keeps an arena of the same plan as a mirror: weights are initialised, loaded and saved
// there, inputs are filled there, and what a step yields is copied back there. Only the persistent
// part of it is touched, and only then takes memory, but where a run ends for its gradients, which
// are searched there.
//
// A device runs behind the host: what is started waits its turn there, in the order it was started.
// Host memory that a copy of this kind reads or writes belongs to the copy until a mark behind it
// is reached:
//
//   executor.UploadLater(ids, buffer);  device.Mark(0);    // returns at once
//   executor.Run(Section::kMicroStep, scalars);
//   device.Await(0);                                       // buffer may be filled anew
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
  // Runs all ops once, one by one, and waits: seconds of each, from the end of the op before it.
  virtual std::vector<double> Profile(const StepScalars& scalars) = 0;
  // Of a whole tensor. Behind them `from` may change, and `to` is written: Download waits.
  virtual void Upload(graph::TensorId id, const std::byte* from) = 0;
  virtual void Download(graph::TensorId id, std::byte* to) const = 0;
  // Likewise, but only started. REQUIRES: memory of Device::AllocateHost().
  virtual void UploadLater(graph::TensorId id, const std::byte* from) = 0;
  virtual void DownloadLater(graph::TensorId id, std::byte* to) const = 0;
  virtual void Zero(graph::TensorId id) = 0;
  // The first `bytes` of the arena; both wait.
  virtual void UploadArena(const std::byte* from, Bytes bytes) = 0;
  virtual void DownloadArena(std::byte* to, Bytes bytes) const = 0;
};

class Device {
 public:
  static constexpr int kMarks = 4;

  virtual ~Device() = default;

  virtual const std::string& name() const = 0;  // "NVIDIA H200"
  // Of the whole device, for everybody.
  virtual Bytes free_memory() const = 0;
  // The arena, zeroed. Fails with what is missing. REQUIRES: called once.
  virtual Status Allocate(Bytes size) = 0;
  // REQUIRES: Allocate() succeeded; the graph was planned for this device and outlives the result,
  // as the device does.
  virtual std::unique_ptr<DeviceExecutor> NewExecutor(const graph::Graph& graph,
                                                      const graph::MemoryPlan& plan) = 0;
  // Zeroes of the host's memory that stay in their place, so that copies run while the host goes
  // on. They live as long as the device. Fails when the system does not give them.
  virtual Result<std::span<std::byte>> AllocateHost(Bytes size) = 0;
  // Sets a mark, 0 to kMarks - 1, behind all that was started.
  virtual void Mark(int mark) = 0;
  // Waits until the device has come to where the mark was set last, and not at all where it never
  // was. Fails as Synchronize() does.
  virtual Status Await(int mark) const = 0;
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
