// SPDX-License-Identifier: Apache-2.0
//
// HostCopies: what copies between the host and a stream need to run while the host goes on: memory
// that is locked to its place, and marks in the stream to wait for.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/device.h"

namespace headroom::engine::cuda {

class HostCopies {
 public:
  HostCopies() = default;
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;
  // REQUIRES: no copy is under way.
  ~HostCopies();

  // Makes the marks, on the current device.
  cudaError_t Open();
  // Zeroes, for as long as this lives.
  Result<std::span<std::byte>> Allocate(Bytes size);
  // As Device has them. REQUIRES: Open() succeeded.
  cudaError_t Mark(int mark, cudaStream_t stream);
  cudaError_t Await(int mark) const;

 private:
  std::vector<void*> memory_;
  std::array<cudaEvent_t, Device::kMarks> marks_{};
};

}  // namespace headroom::engine::cuda
