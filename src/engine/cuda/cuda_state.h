// SPDX-License-Identifier: Apache-2.0
//
// What CudaDevice and CudaExecutor share: what a device holds beside the arena.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "engine/cuda/algorithm_store.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/cudnn_attention.h"
#include "engine/cuda/gemm_library.h"
#include "engine/cuda/host_copies.h"

namespace headroom::engine {

inline void Must(cudaError_t error, const char* what) {
  HEADROOM_CHECK(error == cudaSuccess, Format("{}: {}", what, cudaGetErrorString(error)));
}

template <typename T>
T* OnDevice(const std::vector<T>& values) {
  T* data = nullptr;
  if (values.empty()) return data;
  const size_t bytes = values.size() * sizeof(T);
  Must(cudaMalloc(reinterpret_cast<void**>(&data), bytes), "a table on the GPU");
  Must(cudaMemcpy(data, values.data(), bytes, cudaMemcpyHostToDevice), "a table to the GPU");
  return data;
}

struct CudaDevice::State {
  int index = 0;
  CudaOptions options;
  std::string name;
  cuda::AlgorithmIdentity identity;
  cudaStream_t stream = nullptr;
  std::byte* arena = nullptr;
  int64_t arena_size = 0;
  StepScalars* scalars = nullptr;
  float* quantiser_maps = nullptr;
  uint32_t* counters = nullptr;
  uint32_t* halted = nullptr;
  cuda::HostCopies host;
  std::unique_ptr<cuda::GemmLibrary> gemm;
  std::shared_ptr<cuda::AttentionLibrary> attention;
  std::string no_attention;  // why there is none

  Status OpenGemm(const cudaDeviceProp& properties);
  void OpenAttention(int capability);
  // Later starts find what was timed; where the folder cannot be written they time it again.
  void KeepTimed() const;
  ~State();
};

}  // namespace headroom::engine
