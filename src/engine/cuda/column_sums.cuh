// SPDX-License-Identifier: Apache-2.0
//
// Sums over rows, of a tensor or of what a kernel yields on its way to one. A source tells what:
//
//   Piece Read(int64_t row, int64_t column) const;      V columns of a row, as they lie in memory
//   void Yield(const Piece&, int64_t row, int64_t column, float (&values)[V]) const;
//   static constexpr int kWidth = V, kRowsAtOnce = …;   rows a thread reads before it uses one
#pragma once

#include "engine/cuda/device_types.cuh"
#include "engine/cuda/workspace.h"

namespace headroom::engine::cuda {

// out[first + column] (+)= the sum. The parts of groups of rows lie in [groups, columns] floats.
struct ColumnSumsTarget {
  void* out = nullptr;
  DType dtype{};
  int64_t first = 0;
  bool add = false;
  float* parts = nullptr;
  uint32_t* counters = nullptr;  // of each block of columns; zeroes, and left as zeroes
};

inline constexpr int kSumThreads = 256;
inline constexpr int kSumRows = kSumThreads / 32;  // of a block, at a time

// Sums of 32 * V columns over one group of rows. The last block of its columns adds the groups, in
// their order.
template <typename Source>
__global__ void __launch_bounds__(kSumThreads, 3)
    ColumnSums(Source source, int64_t rows, int columns, ColumnSumsTarget to) {
  constexpr int V = Source::kWidth;
  constexpr int kAtOnce = Source::kRowsAtOnce;
  __shared__ float sums[kSumRows][32 * V];
  __shared__ bool is_last;
  const int64_t group = (rows + gridDim.y - 1) / gridDim.y;
  const int64_t first = blockIdx.y * group;
  const int64_t last = first + group < rows ? first + group : rows;
  const int column = static_cast<int>(blockIdx.x * 32 + threadIdx.x) * V;
  float sum[V] = {};
  if (column < columns) {
    for (int64_t row = first + threadIdx.y; row < last; row += kSumRows * kAtOnce) {
      typename Source::Piece pieces[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (row + k * kSumRows < last) pieces[k] = source.Read(row + k * kSumRows, column);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (row + k * kSumRows >= last) continue;
        float values[V];
        source.Yield(pieces[k], row + k * kSumRows, column, values);
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] += values[i];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < V; ++i) sums[threadIdx.y][threadIdx.x * V + i] = sum[i];
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.y * 32 + threadIdx.x);
  const int at = static_cast<int>(blockIdx.x) * 32 * V + thread;  // one column a thread
  const bool mine = thread < 32 * V && at < columns;
  float total = 0;
  if (mine) {
#pragma unroll
    for (int k = 0; k < kSumRows; ++k) total += sums[k][thread];
    __stcg(to.parts + blockIdx.y * static_cast<int64_t>(columns) + at, total);
  }
  __threadfence();
  __syncthreads();
  if (thread == 0) is_last = atomicAdd(to.counters + blockIdx.x, 1U) == gridDim.y - 1;
  __syncthreads();
  if (!is_last) return;
  if (thread == 0) to.counters[blockIdx.x] = 0;
  __threadfence();
  if (!mine) return;
  total = 0;
#pragma unroll 16
  for (unsigned k = 0; k < gridDim.y; ++k) {
    total += __ldcg(to.parts + k * static_cast<int64_t>(columns) + at);
  }
  WriteOrAdd(to.out, to.dtype, to.first + at, total, to.add);
}

// As many groups of rows, up to kSumParts, as the GPU has room for at once.
template <typename Source>
void LaunchColumnSums(const Source& source, int64_t rows, int64_t columns,
                      const ColumnSumsTarget& to, cudaStream_t stream) {
  const int64_t blocks = CeilDiv(columns, 32 * Source::kWidth);
  HEADROOM_CHECK(blocks <= kCounters, "a sum over rows of too many columns");
  const int64_t resident =
      ResidentBlocks(ColumnSums<Source>, kSumThreads, 0, kSumParts * blocks) / blocks;
  const int64_t groups = std::max<int64_t>(std::min(resident, CeilDiv(rows, 4 * kSumRows)), 1);
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(groups));
  ColumnSums<<<grid, dim3(32, kSumRows), 0, stream>>>(source, rows, static_cast<int>(columns), to);
}

}  // namespace headroom::engine::cuda
