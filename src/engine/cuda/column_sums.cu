// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/device_types.cuh"
#include "engine/cuda/workspace.h"

namespace headroom::engine::cuda {
namespace {

// Sums of 32 * V columns over one group of rows. The last block of its columns adds the groups, in
// their order.
template <typename T, int V>
__global__ void ColumnSums(Rows<const T> x, int64_t rows, int columns, float* parts, Indices index,
                           bool has_index, int64_t wanted, uint32_t* counters, void* out,
                           DType dtype, int64_t first_out, bool add) {
  __shared__ float sums[8][32 * V];
  __shared__ bool is_last;
  const int64_t group = (rows + gridDim.y - 1) / gridDim.y;
  const int64_t first = blockIdx.y * group;
  const int64_t last = first + group < rows ? first + group : rows;
  const int column = static_cast<int>(blockIdx.x * 32 + threadIdx.x) * V;
  float sum[V] = {};
  if (column < columns) {
    for (int64_t row = first + threadIdx.y; row < last; row += 8) {
      if (has_index && index[row] != wanted) continue;
      float values[V];
      Load<V>(x.At(row, column), values);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] += values[i];
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
    for (int k = 0; k < 8; ++k) total += sums[k][thread];
    __stcg(parts + blockIdx.y * static_cast<int64_t>(columns) + at, total);
  }
  __threadfence();
  __syncthreads();
  if (thread == 0) is_last = atomicAdd(counters + blockIdx.x, 1U) == gridDim.y - 1;
  __syncthreads();
  if (!is_last) return;
  if (thread == 0) counters[blockIdx.x] = 0;
  __threadfence();
  if (!mine) return;
  total = 0;
#pragma unroll 8
  for (unsigned k = 0; k < gridDim.y; ++k) {
    total += __ldcg(parts + k * static_cast<int64_t>(columns) + at);
  }
  WriteOrAdd(out, dtype, first_out + at, total, add);
}

}  // namespace

void SumRows(const Launch& launch, const TensorView& x, const TensorView& out, int64_t out_row,
             bool add, float* room, const TensorView& index, int64_t wanted) {
  const auto groups =
      static_cast<unsigned>(std::clamp<int64_t>(CeilDiv(x.rows(), 32), 1, kSumParts));
  WithTypeAndWidth(x.dtype, IsWide(x), [&](auto tag, auto width) {
    using T = typename decltype(tag)::Type;
    constexpr int V = decltype(width)::kValue;
    const dim3 grid(static_cast<unsigned>(CeilDiv(x.cols(), 32 * V)), groups);
    HEADROOM_CHECK(grid.x <= kCounters, "a sum over rows of too many columns");
    ColumnSums<T, V><<<grid, dim3(32, 8), 0, launch.stream>>>(
        RowsOf<const T>(x), x.rows(), static_cast<int>(x.cols()), room, IndicesOf(index),
        static_cast<bool>(index), wanted, launch.counters, out.data, out.dtype,
        out_row * out.stride(), add);
  });
}

}  // namespace headroom::engine::cuda
