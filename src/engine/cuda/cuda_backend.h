// SPDX-License-Identifier: Apache-2.0
//
// The CUDA backend, without CUDA's types: the same plan on a GPU.
//
//   HEADROOM_ASSIGN_OR_RETURN(auto device, CudaDevice::Open(0));
//   HEADROOM_RETURN_IF_ERROR(device->Allocate(plan.size));       // the one allocation of tensors
//   CudaExecutor executor(*device, graph, plan, {});
//   executor.Upload(id, bytes);
//   executor.Run(Section::kMicroStep, scalars);                  // captured once, then replayed
//
// Beside the arena a device holds its context, cuBLAS and less than 1 MiB of tables, all from
// before the first step: running allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/device.h"
#include "engine/op_call.h"
#include "graph/graph.h"
#include "graph/memory_plan.h"

namespace headroom::engine {

struct CudaOptions {
  bool tf32 = false;   // products of float32 matrices on tensor cores
  bool graphs = true;  // captured; else op by op
  bool cudnn = true;   // attention by cuDNN where it serves
  // Where algorithms of matrix products are kept from start to start (cuda/algorithm_store.h);
  // empty: they are timed at each. A folder that cannot be written is no error.
  std::filesystem::path algorithms = {};
};

class CudaDevice : public Device {
 public:
  // The context and its libraries; no tensors yet. One line of error for: no driver, an old one, no
  // GPU of this number, a GPU older than compute capability 8.0, no cuBLAS.
  static Result<std::unique_ptr<CudaDevice>> Open(int index, const CudaOptions& options = {});
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const std::string& name() const override;
  int index() const;
  Bytes free_memory() const override;

  Status Allocate(Bytes size) override;
  Result<std::span<std::byte>> AllocateHost(Bytes size) override;
  void Mark(int mark) override;
  Status Await(int mark) const override;
  Status Synchronize() const override;
  std::unique_ptr<DeviceExecutor> NewExecutor(const graph::Graph& graph,
                                              const graph::MemoryPlan& plan) override;
  std::string Algorithms() const override;
  Status UseAlgorithms(std::string_view text) override;
  // Shapes whose algorithms this device has timed so far; those of others were known.
  int64_t timed_shapes() const;

  struct State;
  State& state() const { return *state_; }

 private:
  CudaDevice();
  Status StatusOf(int error) const;  // of a cudaError_t
  std::unique_ptr<State> state_;
};

class CudaExecutor : public DeviceExecutor {
 public:
  // REQUIRES: AddWorkspaces was applied to the graph, the device has an arena of the plan's size,
  // and all three outlive it.
  CudaExecutor(CudaDevice& device, const graph::Graph& graph, const graph::MemoryPlan& plan,
               const CudaOptions& options);
  ~CudaExecutor() override;

  // Times the algorithms of matrix products whose shapes are new, and keeps them in the folder of
  // CudaOptions; the arena is zeroed again.
  void Tune() override;
  void Run(Section section, const StepScalars& scalars) override;
  // Ops [first, last) by position, not captured.
  void RunOps(size_t first, size_t last, const StepScalars& scalars);
  // Which attention ops cuDNN runs, and why not the others: "48 of 48 ops by cuDNN 9.19.0, …".
  std::string DescribeAttention() const;
  // Not captured; by events between the ops.
  std::vector<double> Profile(const StepScalars& scalars) override;

  void Upload(graph::TensorId id, const std::byte* from) override;
  void Download(graph::TensorId id, std::byte* to) const override;
  void UploadLater(graph::TensorId id, const std::byte* from) override;
  void DownloadLater(graph::TensorId id, std::byte* to) const override;
  void UploadArena(const std::byte* from, Bytes bytes) override;
  void DownloadArena(std::byte* to, Bytes bytes) const override;
  void Zero(graph::TensorId id) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Cards that a process could open; 0 without a driver.
int CudaDeviceCount();

}  // namespace headroom::engine
