// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host_copies.h"

#include <cstring>

#include "base/format.h"

namespace headroom::engine::cuda {

HostCopies::~HostCopies() {
  for (void* data : memory_) cudaFreeHost(data);
  for (const cudaEvent_t mark : marks_) {
    if (mark != nullptr) cudaEventDestroy(mark);
  }
}

cudaError_t HostCopies::Open() {
  for (cudaEvent_t& mark : marks_) {
    const cudaError_t error = cudaEventCreateWithFlags(&mark, cudaEventDisableTiming);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

Result<std::span<std::byte>> HostCopies::Allocate(Bytes size) {
  const auto bytes = static_cast<size_t>(size.count());
  void* data = nullptr;
  if (cudaMallocHost(&data, bytes) != cudaSuccess) {
    cudaGetLastError();
    return Error::Internal(
        Format("the system has no {} of locked memory for copies to the GPU: train with a smaller "
               "--batch or --device cpu",
               FormatBytes(size)));
  }
  memory_.push_back(data);
  std::memset(data, 0, bytes);
  return std::span(static_cast<std::byte*>(data), bytes);
}

cudaError_t HostCopies::Mark(int mark, cudaStream_t stream) {
  return cudaEventRecord(marks_[static_cast<size_t>(mark)], stream);
}

cudaError_t HostCopies::Await(int mark) const {
  return cudaEventSynchronize(marks_[static_cast<size_t>(mark)]);
}

}  // namespace headroom::engine::cuda
