// SPDX-License-Identifier: Apache-2.0
#include "engine/staging.h"

#include <algorithm>
#include <cstring>

#include "graph/arena.h"

namespace headroom::engine {

using graph::TensorId;

Result<Staging> Staging::Create(const StepSet& steps, Device& device) {
  Staging staging;
  staging.device_ = &device;
  Bytes inputs;
  for (const graph::Graph* graph : steps.graphs()) {
    inputs = std::max(inputs, graph->Sum(graph::Role::kInput));
  }
  for (int i = 0; i < kBuffers; ++i) {
    const auto index = static_cast<size_t>(i);
    HEADROOM_ASSIGN_OR_RETURN(staging.inputs_[index], device.AllocateHost(inputs));
    HEADROOM_ASSIGN_OR_RETURN(staging.results_[index],
                              device.AllocateHost(Bytes(static_cast<int64_t>(sizeof(StepResult)))));
  }
  return staging;
}

Status Staging::Upload(const Executor& host, DeviceExecutor& executor) {
  const int buffer = next_input_;
  next_input_ = (next_input_ + 1) % kBuffers;
  HEADROOM_RETURN_IF_ERROR(device_->Await(buffer));
  std::byte* to = inputs_[static_cast<size_t>(buffer)].data();
  for (size_t i = 0; i < host.graph().tensors().size(); ++i) {
    const graph::Tensor& tensor = host.graph().tensors()[i];
    if (tensor.role != graph::Role::kInput || tensor.base) continue;
    const auto id = static_cast<TensorId>(i);
    const auto bytes = static_cast<size_t>(SizeOf(tensor).count());
    std::memcpy(to, host.View(id).data, bytes);
    executor.UploadLater(id, to);
    to += bytes;
  }
  device_->Mark(buffer);
  return {};
}

void Staging::DownloadResult(TensorId loss, TensorId norm, DeviceExecutor& executor) {
  const int slot = next_download_;
  next_download_ = (next_download_ + 1) % kBuffers;
  std::byte* to = results_[static_cast<size_t>(slot)].data();
  executor.DownloadLater(loss, to);
  executor.DownloadLater(norm, to + sizeof(float));
  device_->Mark(kBuffers + slot);
}

Result<StepResult> Staging::ReadResult() {
  const int slot = next_read_;
  next_read_ = (next_read_ + 1) % kBuffers;
  HEADROOM_RETURN_IF_ERROR(device_->Await(kBuffers + slot));
  StepResult result;
  std::memcpy(&result, results_[static_cast<size_t>(slot)].data(), sizeof result);
  return result;
}

}  // namespace headroom::engine
