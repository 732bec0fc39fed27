// SPDX-License-Identifier: Apache-2.0
//
// Attention for every type, width of head and mask, in float32: 32 queries against 32 keys at a
// time. Four threads share a row of the scores and of the output.
#include "engine/cuda/attention.cuh"
#include "engine/cuda/cudnn_attention.h"

namespace headroom::engine::cuda {
namespace {

constexpr int kTile = 32;
constexpr int kThreads = 4 * kTile;

template <typename T>
struct AttentionArgs {
  AttentionShape shape;
  Rows<const T> q, k, v;
  Rows<T> o;
  float* lse;
  bool add;
  // Of the backward pass:
  Rows<const T> dout;
  const float* delta;
  Rows<T> dq, dk, dv;
};

// Rows of one head into shared memory, with a column more than they have.
template <typename T>
__device__ void LoadTile(const Rows<const T>& from, int64_t first, int rows, int column, int dim,
                         float factor, float* to) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * dim; i += kThreads) {
    const int row = i / dim;
    const int d = i % dim;
    to[row * (dim + 1) + d] =
        row < rows ? ToFloat(*from.At(first + row, column + d)) * factor : 0.0F;
  }
}

__device__ float RowMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 2));
}
__device__ float RowSum(float x) {
  x += __shfl_xor_sync(0xffffffffU, x, 1);
  return x + __shfl_xor_sync(0xffffffffU, x, 2);
}

__device__ float Dot(const float* a, const float* b, int dim) {
  float sum = 0;
  for (int d = 0; d < dim; ++d) sum += a[d] * b[d];
  return sum;
}

// N: columns of the head that a thread keeps.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) ForwardKernel(AttentionArgs<T> args) {
  extern __shared__ float room[];
  const AttentionShape& shape = args.shape;
  const int dim = shape.head_dim;
  float* queries = room;
  float* keys = queries + kTile * (dim + 1);
  float* values = keys + kTile * (dim + 1);
  float* scores = values + kTile * (dim + 1);
  const int b = static_cast<int>(blockIdx.z);
  const int head = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.x) * kTile;
  const int rows = min(kTile, shape.queries - first);
  const int row = static_cast<int>(threadIdx.x) / 4;
  const int part = static_cast<int>(threadIdx.x) % 4;
  const int kv_column = head / shape.group() * dim;
  const int64_t query_row = static_cast<int64_t>(b) * shape.queries + first;
  LoadTile(args.q, query_row, rows, head * dim, dim, shape.scale, queries);
  const DropoutMask mask = shape.dropout.Mask();
  const int64_t line = shape.Line(b, head, first + row);
  const int visible = row < rows ? shape.Visible(b, first + row) : 0;
  const int end = shape.Visible(b, first + rows - 1);
  float output[N] = {};
  float max = -INFINITY;
  float sum = 0;
  for (int key = 0; key < end; key += kTile) {
    __syncthreads();
    const int64_t key_row = static_cast<int64_t>(b) * shape.keys + key;
    const int columns = min(kTile, end - key);
    LoadTile(args.k, key_row, columns, kv_column, dim, 1.0F, keys);
    LoadTile(args.v, key_row, columns, kv_column, dim, 1.0F, values);
    __syncthreads();
    float mine[kTile / 4];
    float tile_max = max;
#pragma unroll
    for (int j = 0; j < kTile / 4; ++j) {
      const int c = part + 4 * j;
      mine[j] = -INFINITY;
      if (key + c < visible) {
        mine[j] = Dot(queries + row * (dim + 1), keys + c * (dim + 1), dim) +
                  shape.Bias(head, first + row, key + c);
      }
      tile_max = fmaxf(tile_max, mine[j]);
    }
    tile_max = RowMax(tile_max);
    const float rescale = tile_max == -INFINITY ? 1.0F : expf(max - tile_max);
    float tile_sum = 0;
#pragma unroll
    for (int j = 0; j < kTile / 4; ++j) {
      const int c = part + 4 * j;
      float p = key + c < visible ? expf(mine[j] - tile_max) : 0.0F;
      tile_sum += p;
      if (mask.threshold != 0) {
        p *= mask.Factor(static_cast<uint64_t>(line * shape.keys + key + c));
      }
      scores[row * (kTile + 1) + c] = p;
    }
    sum = sum * rescale + RowSum(tile_sum);
    max = tile_max;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int d = part + 4 * j;
      if (d >= dim) continue;
      float total = output[j] * rescale;
      for (int c = 0; c < columns; ++c) {
        total += scores[row * (kTile + 1) + c] * values[c * (dim + 1) + d];
      }
      output[j] = total;
    }
  }
  if (row >= rows) return;
  const float inverse = sum == 0 ? 0.0F : 1.0F / sum;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int d = part + 4 * j;
    if (d >= dim) continue;
    float value[1] = {output[j] * inverse};
    StoreOrAdd<1>(args.o.At(query_row + row, head * dim + d), value, args.add);
  }
  if (args.lse != nullptr && part == 0) args.lse[line] = sum == 0 ? -INFINITY : max + logf(sum);
}

// do . o of each query and head, V elements a thread: kLanes threads each, or a warp.
template <typename T, int V, int kLanes>
__global__ void DeltaKernel(Rows<const T> dout, Rows<const T> o, AttentionShape shape,
                            float* delta) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kLanes;
  const int64_t row = i / shape.heads;
  const int head = static_cast<int>(i % shape.heads);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const bool inside = row < static_cast<int64_t>(shape.batch) * shape.queries;
  float sum = 0;
  for (int d = lane * V; inside && d < shape.head_dim; d += kLanes * V) {
    float left[V];
    float right[V];
    Load<V>(dout.At(row, head * shape.head_dim + d), left);
    Load<V>(o.At(row, head * shape.head_dim + d), right);
#pragma unroll
    for (int k = 0; k < V; ++k) sum += left[k] * right[k];
  }
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, step);
  if (lane != 0 || !inside) return;
  const auto b = static_cast<int>(row / shape.queries);
  delta[shape.Line(b, head, static_cast<int>(row % shape.queries))] = sum;
}

template <typename T>
void LaunchDelta(const TensorView& dout, const TensorView& o, const AttentionShape& shape,
                 float* delta, cudaStream_t stream) {
  const int64_t lines = static_cast<int64_t>(shape.batch) * shape.queries * shape.heads;
  const auto run = [&](auto kernel, int lanes) {
    kernel<<<static_cast<unsigned>(CeilDiv(lines * lanes, 256)), 256, 0, stream>>>(
        RowsOf<const T>(dout), RowsOf<const T>(o), shape, delta);
  };
  const bool wide = shape.head_dim % 8 == 0 && IsWide(dout) && IsWide(o);
  if (wide && shape.head_dim <= 64) return run(DeltaKernel<T, 8, 8>, 8);
  if (wide) return run(DeltaKernel<T, 8, 16>, 16);
  run(DeltaKernel<T, 1, 32>, 32);
}

struct Score {
  float dropped, gradient;
};
// Of one query and key; both tiles are of all dimensions.
__device__ Score ScoreOf(const AttentionShape& shape, const DropoutMask& mask, const float* query,
                         const float* key, const float* dout, const float* value, int b, int head,
                         int i, int j, float lse, float delta) {
  const float p = expf(Dot(query, key, shape.head_dim) + shape.Bias(head, i, j) - lse);
  const float dp = Dot(dout, value, shape.head_dim);
  float factor = 1;
  if (mask.threshold != 0) {
    factor = mask.Factor(static_cast<uint64_t>(shape.Line(b, head, i) * shape.keys + j));
  }
  return {p * factor, p * (dp * factor - delta)};
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads) KeysKernel(AttentionArgs<T> args) {
  extern __shared__ float room[];
  const AttentionShape& shape = args.shape;
  const int dim = shape.head_dim;
  const int size = kTile * (dim + 1);
  float* queries = room;
  float* douts = queries + size;
  float* keys = douts + size;
  float* values = keys + size;
  float* dropped = values + size;
  float* gradients = dropped + kTile * (kTile + 1);
  const int b = static_cast<int>(blockIdx.z);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.x) * kTile;
  const int rows = min(kTile, shape.keys - first);
  const int row = static_cast<int>(threadIdx.x) / 4;
  const int part = static_cast<int>(threadIdx.x) % 4;
  const int64_t key_row = static_cast<int64_t>(b) * shape.keys + first;
  LoadTile(args.k, key_row, rows, kv_head * dim, dim, 1.0F, keys);
  LoadTile(args.v, key_row, rows, kv_head * dim, dim, 1.0F, values);
  const DropoutMask mask = shape.dropout.Mask();
  float dk[N] = {};
  float dv[N] = {};
  for (int g = 0; g < shape.group(); ++g) {
    const int head = kv_head * shape.group() + g;
    for (int query = 0; query < shape.queries; query += kTile) {
      const int columns = min(kTile, shape.queries - query);
      if (shape.Visible(b, query + columns - 1) <= first) continue;
      __syncthreads();
      const int64_t query_row = static_cast<int64_t>(b) * shape.queries + query;
      LoadTile(args.q, query_row, columns, head * dim, dim, shape.scale, queries);
      LoadTile(args.dout, query_row, columns, head * dim, dim, 1.0F, douts);
      __syncthreads();
#pragma unroll
      for (int j = 0; j < kTile / 4; ++j) {
        const int c = part + 4 * j;
        Score score{0, 0};
        if (c < columns && first + row < shape.Visible(b, query + c)) {
          const int64_t line = shape.Line(b, head, query + c);
          score = ScoreOf(shape, mask, queries + c * (dim + 1), keys + row * (dim + 1),
                          douts + c * (dim + 1), values + row * (dim + 1), b, head, query + c,
                          first + row, args.lse[line], args.delta[line]);
        }
        dropped[row * (kTile + 1) + c] = score.dropped;
        gradients[row * (kTile + 1) + c] = score.gradient;
      }
      __syncwarp();
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const int d = part + 4 * j;
        if (d >= dim) continue;
        for (int c = 0; c < columns; ++c) {
          dv[j] += dropped[row * (kTile + 1) + c] * douts[c * (dim + 1) + d];
          dk[j] += gradients[row * (kTile + 1) + c] * queries[c * (dim + 1) + d];
        }
      }
    }
  }
  if (row >= rows) return;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int d = part + 4 * j;
    if (d >= dim) continue;
    float a[1] = {dk[j]};
    float c[1] = {dv[j]};
    StoreOrAdd<1>(args.dk.At(key_row + row, kv_head * dim + d), a, args.add);
    StoreOrAdd<1>(args.dv.At(key_row + row, kv_head * dim + d), c, args.add);
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads) QueriesKernel(AttentionArgs<T> args) {
  extern __shared__ float room[];
  const AttentionShape& shape = args.shape;
  const int dim = shape.head_dim;
  const int size = kTile * (dim + 1);
  float* queries = room;
  float* douts = queries + size;
  float* keys = douts + size;
  float* values = keys + size;
  float* gradients = values + size;
  const int b = static_cast<int>(blockIdx.z);
  const int head = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.x) * kTile;
  const int rows = min(kTile, shape.queries - first);
  const int row = static_cast<int>(threadIdx.x) / 4;
  const int part = static_cast<int>(threadIdx.x) % 4;
  const int kv_column = head / shape.group() * dim;
  const int64_t query_row = static_cast<int64_t>(b) * shape.queries + first;
  LoadTile(args.q, query_row, rows, head * dim, dim, shape.scale, queries);
  LoadTile(args.dout, query_row, rows, head * dim, dim, 1.0F, douts);
  const DropoutMask mask = shape.dropout.Mask();
  const int64_t line = shape.Line(b, head, first + row);
  const int visible = row < rows ? shape.Visible(b, first + row) : 0;
  const float lse = row < rows ? args.lse[line] : 0.0F;
  const float delta = row < rows ? args.delta[line] : 0.0F;
  const int end = shape.Visible(b, first + rows - 1);
  float dq[N] = {};
  for (int key = 0; key < end; key += kTile) {
    __syncthreads();
    const int64_t key_row = static_cast<int64_t>(b) * shape.keys + key;
    const int columns = min(kTile, end - key);
    LoadTile(args.k, key_row, columns, kv_column, dim, 1.0F, keys);
    LoadTile(args.v, key_row, columns, kv_column, dim, 1.0F, values);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kTile / 4; ++j) {
      const int c = part + 4 * j;
      Score score{0, 0};
      if (key + c < visible) {
        score = ScoreOf(shape, mask, queries + row * (dim + 1), keys + c * (dim + 1),
                        douts + row * (dim + 1), values + c * (dim + 1), b, head, first + row,
                        key + c, lse, delta);
      }
      gradients[row * (kTile + 1) + c] = score.gradient;
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int d = part + 4 * j;
      if (d >= dim) continue;
      for (int c = 0; c < columns; ++c) {
        dq[j] += gradients[row * (kTile + 1) + c] * keys[c * (dim + 1) + d];
      }
    }
  }
  if (row >= rows) return;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int d = part + 4 * j;
    if (d >= dim) continue;
    float value[1] = {dq[j] * shape.scale};
    StoreOrAdd<1>(args.dq.At(query_row + row, head * dim + d), value, args.add);
  }
}

template <typename T>
void LaunchTiles(void (*kernel)(AttentionArgs<T>), const AttentionArgs<T>& args, int length,
                 int heads, int tiles, int squares, cudaStream_t stream) {
  const int bytes = static_cast<int>(sizeof(float)) *
                    (tiles * kTile * (args.shape.head_dim + 1) + squares * kTile * (kTile + 1));
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  const dim3 grid(static_cast<unsigned>(CeilDiv(length, kTile)), static_cast<unsigned>(heads),
                  static_cast<unsigned>(args.shape.batch));
  kernel<<<grid, kThreads, static_cast<size_t>(bytes), stream>>>(args);
}

__global__ void SeedsKernel(const StepScalars* step, const SeedRequest* requests, int64_t count,
                            int64_t* seeds) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  // The key differs from that of the masks of dropout.h, whose counters begin with an element.
  constexpr uint64_t kKey = 0x9e3779b97f4a7c15U;
  const auto words =
      Philox({requests[i].stream, requests[i].chunk, static_cast<uint32_t>(step->step),
              static_cast<uint32_t>(step->micro_step)},
             step->seed ^ kKey);
  seeds[2 * i] = static_cast<int64_t>((static_cast<uint64_t>(words[0] >> 1) << 32) | words[1]);
  seeds[2 * i + 1] = 0;
}

bool RunByLibrary(const OpCall& call, const Launch& launch) {
  const AttentionLaunch& attention = launch.attention;
  if (attention.plan == nullptr) return false;
  attention.library->Run(*attention.plan, call, attention.seeds, launch.stream);
  return true;
}

// function(Width<N>{}), N the columns of a head that one of four threads keeps.
template <typename Function>
void WithColumns(int head_dim, const Function& function) {
  if (head_dim <= 32) return function(Width<8>{});
  if (head_dim <= 64) return function(Width<16>{});
  if (head_dim <= 128) return function(Width<32>{});
  HEADROOM_CHECK(head_dim <= 256, "attention heads wider than 256");
  function(Width<64>{});
}

}  // namespace

void RunAttention(const OpCall& call, const Launch& launch) {
  if (RunByLibrary(call, launch) || RunFlashAttention(call, launch) ||
      RunProductAttention(call, launch)) {
    return;
  }
  const TensorView q = Operand(call.inputs, 0);
  WithType(q.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    AttentionArgs<T> args{};
    args.shape = ShapeOf(call, launch, 3);
    args.q = RowsOf<const T>(q);
    args.k = RowsOf<const T>(call.inputs[1]);
    args.v = RowsOf<const T>(call.inputs[2]);
    args.o = RowsOf<T>(call.outputs[0]);
    args.lse = Operand(call.outputs, 1).As<float>();
    args.add = call.attributes.accumulate;
    WithColumns(args.shape.head_dim, [&](auto columns) {
      LaunchTiles<T>(ForwardKernel<T, decltype(columns)::kValue>, args, args.shape.queries,
                     args.shape.heads, 3, 1, launch.stream);
    });
  });
}

void RunAttentionBackward(const OpCall& call, const Launch& launch) {
  if (RunByLibrary(call, launch)) return;
  const TensorView q = Operand(call.inputs, 1);
  auto* delta = reinterpret_cast<float*>(WorkspaceOf(call));
  WithType(q.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    AttentionArgs<T> args{};
    args.shape = ShapeOf(call, launch, 6);
    args.dout = RowsOf<const T>(call.inputs[0]);
    args.q = RowsOf<const T>(q);
    args.k = RowsOf<const T>(call.inputs[2]);
    args.v = RowsOf<const T>(call.inputs[3]);
    args.lse = call.inputs[5].As<float>();
    args.delta = delta;
    args.dq = RowsOf<T>(call.outputs[0]);
    args.dk = RowsOf<T>(call.outputs[1]);
    args.dv = RowsOf<T>(call.outputs[2]);
    args.add = call.attributes.accumulate;
    LaunchDelta<T>(call.inputs[0], call.inputs[4], args.shape, delta, launch.stream);
    if (RunFlashAttentionBackward(call, launch, delta)) return;
    if (RunProductAttentionBackward(call, launch, delta)) return;
    WithColumns(args.shape.head_dim, [&](auto columns) {
      constexpr int N = decltype(columns)::kValue;
      LaunchTiles<T>(KeysKernel<T, N>, args, args.shape.keys, args.shape.kv_heads, 4, 2,
                     launch.stream);
      LaunchTiles<T>(QueriesKernel<T, N>, args, args.shape.queries, args.shape.heads, 4, 1,
                     launch.stream);
    });
  });
}

void SetDropoutSeeds(const StepScalars* scalars, const SeedRequest* requests, int64_t count,
                     int64_t* seeds, cudaStream_t stream) {
  SeedsKernel<<<static_cast<unsigned>(CeilDiv(count, kThreads)), kThreads, 0, stream>>>(
      scalars, requests, count, seeds);
}

}  // namespace headroom::engine::cuda
