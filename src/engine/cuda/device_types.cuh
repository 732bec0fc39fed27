// SPDX-License-Identifier: Apache-2.0
//
// How CUDA kernels see tensors: rows of float32, bfloat16 or float16, read and written as float32,
// 16 bytes at a time where addresses and strides allow it (V = 8), else one by one (V = 1).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "engine/cpu/dropout.h"
#include "engine/cuda/cuda_ops.h"

namespace headroom::engine::cuda {

using Half = __half;
using BFloat = __nv_bfloat16;

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(Half x) { return __half2float(x); }
__device__ inline float ToFloat(BFloat x) { return __bfloat162float(x); }
template <typename T>
__device__ T FromFloat(float x);
template <>
__device__ inline float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ inline Half FromFloat<Half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline BFloat FromFloat<BFloat>(float x) {
  return __float2bfloat16_rn(x);
}
template <typename T>
__device__ float Rounded(float x) {
  return ToFloat(FromFloat<T>(x));
}

// exp(x), as exact as results of type T show it: in 16 bits to about (4 + |x|) 2^-24 relative, and
// 0 in place of what is no normal number.
template <typename T>
__device__ float Exp(float x) {
  if constexpr (sizeof(T) == 4) {
    return expf(x);
  } else {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.4426950408889634F));
    return result;
  }
}

template <typename T, int V>
struct alignas(V * sizeof(T) < 16 ? V * sizeof(T) : 16) Packed {
  T values[V];
};

template <typename T, int V>
__device__ void Unpack(Packed<T, V> packed, float (&values)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) values[i] = ToFloat(packed.values[i]);
}

// A copy, which is one access of memory: elements of a reference are read one by one.
template <int V, typename T>
__device__ Packed<T, V> ReadPacked(const T* from) {
  return *reinterpret_cast<const Packed<T, V>*>(from);
}

template <int V, typename T>
__device__ void Load(const T* from, float (&values)[V]) {
  Unpack(ReadPacked<V>(from), values);
}

template <int V, typename T>
__device__ void Store(T* to, const float (&values)[V]) {
  Packed<T, V> packed;
#pragma unroll
  for (int i = 0; i < V; ++i) packed.values[i] = FromFloat<T>(values[i]);
  *reinterpret_cast<Packed<T, V>*>(to) = packed;
}

// Adds instead, in float32.
template <int V, typename T>
__device__ void StoreOrAdd(T* to, float (&values)[V], bool add) {
  if (add) {
    float old[V];
    Load<V>(to, old);
#pragma unroll
    for (int i = 0; i < V; ++i) values[i] += old[i];
  }
  Store<V>(to, values);
}

// One element of a tensor whose type is known at run time alone: gradients of small weights.
__device__ inline void WriteOrAdd(void* to, DType dtype, int64_t i, float value, bool add) {
  if (dtype == DType::kFloat32) {
    auto* at = static_cast<float*>(to) + i;
    *at = add ? *at + value : value;
  } else if (dtype == DType::kBFloat16) {
    auto* at = static_cast<BFloat*>(to) + i;
    *at = FromFloat<BFloat>(add ? ToFloat(*at) + value : value);
  } else {
    auto* at = static_cast<Half*>(to) + i;
    *at = FromFloat<Half>(add ? ToFloat(*at) + value : value);
  }
}

template <typename T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;

  __device__ T* At(int64_t row, int64_t column) const { return data + row * stride + column; }
};

template <typename T>
Rows<T> RowsOf(const TensorView& tensor) {
  return {tensor.As<T>(), tensor.stride()};
}

// Token ids, labels, lengths.
struct Indices {
  const void* data = nullptr;
  bool wide = false;

  __device__ int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};
inline Indices IndicesOf(const TensorView& tensor) {
  return {tensor.data, tensor.dtype == DType::kInt64};
}

// The mask of engine/cpu/dropout.h, with what changes from step to step read on the device.
struct DropoutArgs {
  const StepScalars* step = nullptr;
  uint32_t stream = 0;
  uint32_t threshold = 0;  // 0: nothing is dropped
  float scale = 1;

  __device__ DropoutMask Mask() const {
    return {.key = step->seed,
            .micro_step = static_cast<uint32_t>(step->micro_step),
            .step = static_cast<uint32_t>(step->step),
            .stream = stream,
            .threshold = threshold,
            .scale = scale};
  }
};
inline DropoutArgs DropoutOf(const OpCall& call, const Launch& launch) {
  const float rate = call.attributes.dropout;
  if (!call.step.training || rate == 0) return {.step = launch.scalars};
  return {.step = launch.scalars,
          .stream = call.attributes.stream,
          .threshold = DropThreshold(rate),
          .scale = DropScale(DropThreshold(rate))};
}

// Factors of V elements from `element` on, which is a multiple of 4 and of V.
template <int V>
__device__ void DropFactors(const DropoutMask& mask, uint64_t element, float (&factors)[V]) {
  if constexpr (V % 4 == 0) {
    static_assert(V <= 8);
    const auto words = Philox(mask.Counter(element / 8), mask.key);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const uint32_t half = DropoutMask::Half(words[i % 4], element + i);
      factors[i] = half >= mask.threshold ? mask.scale : 0.0F;
    }
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) factors[i] = mask.Factor(element + i);
  }
}

__device__ inline float WarpSum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffU, x, step);
  return x;
}
__device__ inline float WarpMax(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, step));
  return x;
}

// What the lanes up to and with this one have together.
__device__ inline uint32_t InclusiveWarpScan(uint32_t x) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t below = __shfl_up_sync(0xffffffffU, x, step);
    if (static_cast<int>(threadIdx.x) % 32 >= step) x += below;
  }
  return x;
}

// Over a block of whole warps; every thread gets the sums. `room` has N * 32 floats.
template <int N>
__device__ void BlockSum(float (&x)[N], float* room) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = WarpSum(x[i]);
  if (warps == 1) return;
  __syncthreads();
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < N; ++i) room[i * 32 + warp] = x[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = WarpSum(lane < warps ? room[i * 32 + lane] : 0.0F);
}

template <typename T>
struct Tag {
  using Type = T;
};

// function(Tag<T>{}) with the C++ type of a storage type.
template <typename Function>
void WithType(DType dtype, const Function& function) {
  if (dtype == DType::kFloat32) {
    function(Tag<float>{});
  } else if (dtype == DType::kBFloat16) {
    function(Tag<BFloat>{});
  } else {
    HEADROOM_CHECK(dtype == DType::kFloat16, "a CUDA op on a type that is no storage type");
    function(Tag<Half>{});
  }
}

template <int V>
struct Width {
  static constexpr int kValue = V;
};
// Whether vectors of 8 can be used on it.
inline bool IsWide(const TensorView& tensor) {
  return !tensor || (tensor.cols() % 8 == 0 && tensor.stride() % 8 == 0 &&
                     reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0);
}
template <typename Function>
void WithTypeAndWidth(DType dtype, bool wide, const Function& function) {
  WithType(dtype, [&](auto tag) {
    if (wide) {
      function(tag, Width<8>{});
    } else {
      function(tag, Width<1>{});
    }
  });
}

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Of the GPU in use.
inline int DeviceAttribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, attribute, device);
  return value;
}

// What a block may ask for, beside what its kernel has of its own. A kernel is allowed all of it
// once for all its launches: one that is captured needs it when the graph is made.
inline int MostSharedMemory() {
  constexpr int kOwn = 1024;
  return DeviceAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kOwn;
}

// As many blocks as the GPU runs at once, for kernels whose blocks take rows until there are none;
// at most `most`.
template <typename Kernel>
unsigned ResidentBlocks(Kernel kernel, int threads, size_t bytes, int64_t most) {
  int each = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, bytes);
  const int64_t all = int64_t{std::max(each, 1)} * DeviceAttribute(cudaDevAttrMultiProcessorCount);
  return static_cast<unsigned>(std::min(all, most));
}

}  // namespace headroom::engine::cuda
