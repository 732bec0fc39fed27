// SPDX-License-Identifier: Apache-2.0
#include <climits>

#include "engine/cuda/device_types.cuh"
#include "engine/cuda/workspace.h"

namespace headroom::engine::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kFound = 1024;  // rows of one id that are collected before they are added up; 2^n

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

// Brings rows of one id together: `order` lists the rows id by id, and ends[id] is where an id's
// part of it ends. Which id comes first, and how an id's rows lie, is left to chance.
__global__ void CountIds(Indices ids, int rows, uint32_t* ends) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row < rows) atomicAdd(ends + ids[row], 1U);
}

// From counts to beginnings: a block takes as much of the list as its ids have rows.
__global__ void __launch_bounds__(1024) PlaceIds(uint32_t* ends, int count, uint32_t* taken) {
  __shared__ uint32_t sums[32];
  __shared__ uint32_t first;
  const int id = static_cast<int>(blockIdx.x * 1024 + threadIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const uint32_t own = id < count ? ends[id] : 0;
  uint32_t before = InclusiveWarpScan(own);
  if (lane == 31) sums[warp] = before;
  __syncthreads();
  if (warp == 0) {
    sums[lane] = InclusiveWarpScan(sums[lane]);
    if (lane == 31) first = atomicAdd(taken, sums[31]);
  }
  __syncthreads();
  before += first + (warp == 0 ? 0 : sums[warp - 1]) - own;
  if (id < count) ends[id] = before;
}

__global__ void ListRows(Indices ids, int rows, uint32_t* ends, int32_t* order) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row < rows) order[atomicAdd(ends + ids[row], 1U)] = row;
}

// Sorts `count` of kFound numbers in shared memory; what lies behind them is overwritten.
__device__ void SortFound(int* found, int count) {
  int size = 1;
  while (size < count) size *= 2;
  for (int i = count + static_cast<int>(threadIdx.x); i < size; i += kThreads) found[i] = INT_MAX;
  __syncthreads();
  for (int width = 2; width <= size; width *= 2) {
    for (int step = width / 2; step > 0; step /= 2) {
      for (int i = static_cast<int>(threadIdx.x); i < size; i += kThreads) {
        const int other = i ^ step;
        const bool up = (i & width) == 0;
        if (other > i && (found[i] > found[other]) == up) {
          const int kept = found[i];
          found[i] = found[other];
          found[other] = kept;
        }
      }
      __syncthreads();
    }
  }
}

// Rows with the id, from `next` on and in their order, until `found` is nearly full or there are no
// more. Returns how many.
__device__ int FindRows(const Indices& ids, int rows, int64_t id, int& next, int* found) {
  __shared__ int counts[kThreads / 32];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int count = 0;
  while (next < rows && count + kThreads <= kFound) {
    const int at = next + static_cast<int>(threadIdx.x);
    const bool match = at < rows && ids[at] == id;
    const unsigned ballot = __ballot_sync(0xffffffffU, match);
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
  return count;
}

template <typename T, typename G>
struct TableArgs {
  Rows<const T> dy;
  Indices ids;
  int rows;
  int columns;
  const int32_t* order;
  const uint32_t* ends;
  Rows<G> dtable;
  int64_t padding_row;
  float scale;
  bool add;
};

template <typename T, typename G, int V>
__device__ void AddRows(const TableArgs<T, G>& args, int64_t id, const int* found, int count,
                        bool add) {
  for (int column = static_cast<int>(threadIdx.x) * V; column < args.columns;
       column += kThreads * V) {
    float sum[V] = {};
#pragma unroll 4
    for (int k = 0; k < count; ++k) {
      float values[V];
      Load<V>(args.dy.At(found[k], column), values);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] += values[i];
    }
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] *= args.scale;
    StoreOrAdd<V>(args.dtable.At(id, column), sum, add);
  }
}

// The block of the first place of an id adds up all its rows, in their order; the other blocks have
// nothing to do.
template <typename T, typename G, int V>
__global__ void __launch_bounds__(kThreads) TableKernel(TableArgs<T, G> args) {
  __shared__ int found[kFound];
  const int place = static_cast<int>(blockIdx.x);
  const int64_t id = args.ids[args.order[place]];
  if (id == args.padding_row) return;
  if (place > 0 && args.ids[args.order[place - 1]] == id) return;
  const int count = static_cast<int>(args.ends[id]) - place;
  if (count <= kFound) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
      found[i] = args.order[place + i];
    }
    __syncthreads();
    SortFound(found, count);
    AddRows<T, G, V>(args, id, found, count, args.add);
    return;
  }
  // Too many to sort: what has been written for the ones before is added to.
  bool add = args.add;
  for (int next = 0; next < args.rows;) {
    const int some = FindRows(args.ids, args.rows, id, next, found);
    if (some == 0) continue;
    AddRows<T, G, V>(args, id, found, some, add);
    add = true;
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

void TableGradient(const OpCall& call, const Launch& launch, const TensorView& dtable, bool add) {
  constexpr unsigned kMany = 1024;
  const TensorView dy = call.inputs[0];
  const Indices ids = IndicesOf(call.inputs[1]);
  const auto rows = static_cast<int>(dy.rows());
  const int64_t table = dtable.rows();
  auto* ends = reinterpret_cast<uint32_t*>(WorkspaceOf(call));
  auto* order = call.scratch[0].As<int32_t>();
  const auto blocks = static_cast<unsigned>(CeilDiv(rows, kMany));
  if (!add) Zero(launch, dtable);
  cudaMemsetAsync(ends, 0, static_cast<size_t>(table + 1) * sizeof(uint32_t), launch.stream);
  CountIds<<<blocks, kMany, 0, launch.stream>>>(ids, rows, ends);
  PlaceIds<<<static_cast<unsigned>(CeilDiv(table, kMany)), kMany, 0, launch.stream>>>(
      ends, static_cast<int>(table), ends + table);
  ListRows<<<blocks, kMany, 0, launch.stream>>>(ids, rows, ends, order);
  WithTypeAndWidth(dy.dtype, IsWide(dy) && IsWide(dtable), [&](auto tag, auto width) {
    using T = typename decltype(tag)::Type;
    constexpr int V = decltype(width)::kValue;
    const auto run = [&](auto gradient) {
      using G = typename decltype(gradient)::Type;
      TableKernel<T, G, V><<<static_cast<unsigned>(rows), kThreads, 0, launch.stream>>>(
          {.dy = RowsOf<const T>(dy),
           .ids = ids,
           .rows = rows,
           .columns = static_cast<int>(dy.cols()),
           .order = order,
           .ends = ends,
           .dtable = RowsOf<G>(dtable),
           .padding_row = call.attributes.padding_row,
           .scale = call.attributes.embedding_scale,
           .add = add});
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
  if (dtable) TableGradient(call, launch, dtable, add);
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
