// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/device_types.cuh"
#include "engine/cuda/workspace.h"

namespace headroom::engine::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kFound = 1024;  // rows of one id that are collected before they are added up

// P: of positions, which are constants in float32 where they are no parameter.
template <typename T, typename P, int V>
__global__ void EmbeddingKernel(Indices ids, Rows<const T> table, Rows<const P> positions,
                                Rows<const T> types, Indices type_ids, Rows<T> y, int columns,
                                int64_t sequence, int offset, float scale) {
  const int64_t row = blockIdx.x;
  const int64_t id = ids[row];
  const int64_t type = type_ids.data != nullptr ? type_ids[row] : 0;
  for (int column = static_cast<int>(threadIdx.x) * V; column < columns; column += kThreads * V) {
    float sum[V];
    float other[V];
    Load<V>(table.At(id, column), sum);
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] *= scale;
    if (positions.data != nullptr) {
      Load<V>(positions.At(row % sequence + offset, column), other);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] += other[i];
    }
    if (types.data != nullptr) {
      Load<V>(types.At(type, column), other);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] += other[i];
    }
    Store<V>(y.At(row, column), sum);
  }
}

// The block of the first row with an id adds up all its rows, in their order; the other blocks
// have nothing to do.
template <typename T, typename G, int V>
__global__ void TableKernel(Rows<const T> dy, Indices ids, int rows, int columns, Rows<G> dtable,
                            int64_t padding_row, float scale, bool add) {
  __shared__ int found[kFound];
  __shared__ int counts[kThreads / 32];
  const int row = static_cast<int>(blockIdx.x);
  const int64_t id = ids[row];
  if (id == padding_row) return;
  for (int start = 0; start < row; start += kThreads) {
    const int at = start + static_cast<int>(threadIdx.x);
    if (__syncthreads_or(at < row && ids[at] == id)) return;
  }
  int next = row;
  bool first_batch = true;
  while (next < rows) {
    int count = 0;
    while (next < rows && count + kThreads <= kFound) {
      const int at = next + static_cast<int>(threadIdx.x);
      const bool match = at < rows && ids[at] == id;
      const unsigned ballot = __ballot_sync(0xffffffffU, match);
      const int warp = static_cast<int>(threadIdx.x) / 32;
      const int lane = static_cast<int>(threadIdx.x) % 32;
      if (lane == 0) counts[warp] = __popc(ballot);
      __syncthreads();
      int place = count;
#pragma unroll
      for (int i = 0; i < kThreads / 32; ++i) {
        if (i < warp) place += counts[i];
        count += counts[i];
      }
      if (match) found[place + __popc(ballot & ((1U << lane) - 1))] = at;
      next += kThreads;
      __syncthreads();
    }
    // What has been written for an earlier batch of the same id is added to.
    const bool adds = add || !first_batch;
    if (count > 0) {
      for (int column = static_cast<int>(threadIdx.x) * V; column < columns;
           column += kThreads * V) {
        float sum[V] = {};
        for (int k = 0; k < count; ++k) {
          float values[V];
          Load<V>(dy.At(found[k], column), values);
#pragma unroll
          for (int i = 0; i < V; ++i) sum[i] += values[i];
        }
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] *= scale;
        StoreOrAdd<V>(dtable.At(id, column), sum, adds);
      }
      first_batch = false;
    }
    __syncthreads();
  }
}

template <typename T, int V>
__global__ void PositionKernel(Rows<const T> dy, int64_t batch, int64_t sequence, int columns,
                               void* out, DType dtype, int64_t stride, int offset, bool add) {
  const int64_t position = blockIdx.x;
  for (int column = static_cast<int>(threadIdx.x) * V; column < columns; column += kThreads * V) {
    float sum[V] = {};
    for (int64_t b = 0; b < batch; ++b) {
      float values[V];
      Load<V>(dy.At(b * sequence + position, column), values);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] += values[i];
    }
#pragma unroll
    for (int i = 0; i < V; ++i) {
      WriteOrAdd(out, dtype, (position + offset) * stride + column + i, sum[i], add);
    }
  }
}

void Zero(const Launch& launch, const TensorView& tensor) {
  cudaMemsetAsync(tensor.data, 0,
                  static_cast<size_t>(tensor.shape.NumElements() * ElementSize(tensor.dtype)),
                  launch.stream);
}

void TableGradient(const OpCall& call, const Launch& launch, const TensorView& dy,
                   const TensorView& ids, const TensorView& dtable, bool add) {
  if (!add) Zero(launch, dtable);
  WithTypeAndWidth(dy.dtype, IsWide(dy) && IsWide(dtable), [&](auto tag, auto width) {
    using T = typename decltype(tag)::Type;
    constexpr int V = decltype(width)::kValue;
    const auto run = [&](auto gradient) {
      using G = typename decltype(gradient)::Type;
      TableKernel<T, G, V><<<static_cast<unsigned>(dy.rows()), kThreads, 0, launch.stream>>>(
          RowsOf<const T>(dy), IndicesOf(ids), static_cast<int>(dy.rows()),
          static_cast<int>(dy.cols()), RowsOf<G>(dtable), call.attributes.padding_row,
          call.attributes.embedding_scale, add);
    };
    if (dtable.dtype == DType::kFloat32) return run(Tag<float>{});
    HEADROOM_CHECK(dtable.dtype == dy.dtype, "a table's gradient of a third type");
    run(Tag<T>{});
  });
}

void PositionGradient(const OpCall& call, const Launch& launch, const TensorView& dy,
                      const TensorView& out, bool add) {
  if (!add) Zero(launch, out);
  WithTypeAndWidth(dy.dtype, IsWide(dy), [&](auto tag, auto width) {
    using T = typename decltype(tag)::Type;
    constexpr int V = decltype(width)::kValue;
    PositionKernel<T, V>
        <<<static_cast<unsigned>(call.attributes.sequence), kThreads, 0, launch.stream>>>(
            RowsOf<const T>(dy), call.attributes.batch, call.attributes.sequence,
            static_cast<int>(dy.cols()), out.data, out.dtype, out.stride(),
            call.attributes.position_offset, add);
  });
}

}  // namespace

void RunEmbedding(const OpCall& call, const Launch& launch) {
  const TensorView table = Operand(call.inputs, 1);
  const TensorView positions = Operand(call.inputs, 2);
  const TensorView types = Operand(call.inputs, 3);
  const TensorView y = Operand(call.outputs, 0);
  WithTypeAndWidth(y.dtype, IsWide(table) && IsWide(y), [&](auto tag, auto width) {
    using T = typename decltype(tag)::Type;
    constexpr int V = decltype(width)::kValue;
    const auto run = [&](auto position) {
      using P = typename decltype(position)::Type;
      EmbeddingKernel<T, P, V><<<static_cast<unsigned>(y.rows()), kThreads, 0, launch.stream>>>(
          IndicesOf(call.inputs[0]), RowsOf<const T>(table), RowsOf<const P>(positions),
          RowsOf<const T>(types), IndicesOf(Operand(call.inputs, 4)), RowsOf<T>(y),
          static_cast<int>(y.cols()), std::max<int64_t>(call.attributes.sequence, 1),
          call.attributes.position_offset, call.attributes.embedding_scale);
    };
    if (positions && positions.dtype != y.dtype) return run(Tag<float>{});
    run(tag);
  });
}

void RunEmbeddingBackward(const OpCall& call, const Launch& launch) {
  const TensorView dy = Operand(call.inputs, 0);
  const TensorView type_ids = Operand(call.inputs, 2);
  const TensorView dtable = Operand(call.outputs, 0);
  const TensorView dpositions = Operand(call.outputs, 1);
  const TensorView dtypes = Operand(call.outputs, 2);
  const bool add = AddsToWeight(call);
  if (dtable) TableGradient(call, launch, dy, call.inputs[1], dtable, add);
  if (dpositions) PositionGradient(call, launch, dy, dpositions, add);
  if (!dtypes) return;
  auto* room = reinterpret_cast<float*>(WorkspaceOf(call));
  for (int64_t type = 0; type < dtypes.rows(); ++type) {
    if (!type_ids && type > 0) {
      if (!add) {
        cudaMemsetAsync(dtypes.data + type * dtypes.stride() * ElementSize(dtypes.dtype), 0,
                        static_cast<size_t>(dtypes.cols() * ElementSize(dtypes.dtype)),
                        launch.stream);
      }
      continue;
    }
    SumRows(launch, dy, dtypes, type, add, room, type_ids, type);
  }
}

}  // namespace headroom::engine::cuda
