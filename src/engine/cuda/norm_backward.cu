// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/row_ring.cuh"
#include "engine/cuda/workspace.h"

namespace headroom::engine::cuda {
namespace {

constexpr int kMostSums = 3;

template <typename T>
struct NormBackwardArgs {
  Rows<const T> dy, x, dsum;
  const T* gamma;
  const float* mean;
  const float* rstd;
  Rows<T> dx, dresidual;
  // Sums of a block's rows for dgamma, dbeta and, where they are three, dbias.
  float* parts;  // [kNormParts, sums, columns]
  int sums;
  DropoutArgs dropout;
  int64_t rows;
  int columns;
  bool centred;
  bool add;
};

// What a row's elements from `column` on owe the residual, and through its dropout the branch: that
// is left in dx.
template <typename T, int V>
__device__ void StoreGradients(const NormBackwardArgs<T>& args, const DropoutMask& mask,
                               int64_t row, int column, float (&dx)[V]) {
  if (args.dresidual.data != nullptr) {
    float other[V];
#pragma unroll
    for (int i = 0; i < V; ++i) other[i] = dx[i];
    StoreOrAdd<V>(args.dresidual.At(row, column), other, args.add);
    if (mask.threshold != 0) {
      DropFactors<V>(mask, static_cast<uint64_t>(row * args.columns + column), other);
#pragma unroll
      for (int i = 0; i < V; ++i) dx[i] *= other[i];
    }
  }
  StoreOrAdd<V>(args.dx.At(row, column), dx, args.add);
}

// A block takes every gridDim.x-th row and keeps what they add to dgamma and dbeta.
template <typename T, int V, int N>
__global__ void __launch_bounds__(1024) NormBackwardKernel(NormBackwardArgs<T> args) {
  __shared__ float room[2][2 * 32];
  const int threads = static_cast<int>(blockDim.x);
  const auto count = static_cast<float>(args.columns);
  float dgamma[N][V] = {};
  float dbeta[N][V] = {};
  const DropoutMask mask = args.dropout.Mask();
  int turn = 0;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x, turn ^= 1) {
    const float mean = args.mean != nullptr ? args.mean[row] : 0.0F;
    const float rstd = args.rstd[row];
    float normal[N][V];
    float scaled[N][V];
    float sums[2] = {};
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int column = (k * threads + static_cast<int>(threadIdx.x)) * V;
      if (column >= args.columns) continue;
      float dy[V];
      float gamma[V];
      Load<V>(args.dy.At(row, column), dy);
      Load<V>(args.x.At(row, column), normal[k]);
      Load<V>(args.gamma + column, gamma);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        normal[k][i] = (normal[k][i] - mean) * rstd;
        scaled[k][i] = dy[i] * gamma[i];
        sums[0] += scaled[k][i];
        sums[1] += scaled[k][i] * normal[k][i];
        dgamma[k][i] += dy[i] * normal[k][i];
        dbeta[k][i] += dy[i];
      }
    }
    BlockSum<2>(sums, room[turn]);
    const float shift = args.centred ? sums[0] / count : 0.0F;
    const float slope = sums[1] / count;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int column = (k * threads + static_cast<int>(threadIdx.x)) * V;
      if (column >= args.columns) continue;
      float dx[V];
#pragma unroll
      for (int i = 0; i < V; ++i) dx[i] = rstd * (scaled[k][i] - shift - normal[k][i] * slope);
      if (args.dsum.data != nullptr) {
        float other[V];
        Load<V>(args.dsum.At(row, column), other);
#pragma unroll
        for (int i = 0; i < V; ++i) dx[i] += other[i];
      }
      StoreGradients<T, V>(args, mask, row, column, dx);
    }
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int column = (k * threads + static_cast<int>(threadIdx.x)) * V;
    if (column >= args.columns) continue;
    float* part = args.parts + static_cast<int64_t>(blockIdx.x) * args.sums * args.columns;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      part[column + i] = dgamma[k][i];
      part[args.columns + column + i] = dbeta[k][i];
    }
  }
}

// The same for rows that a group of threads reads at once, 8 columns a thread: each thread keeps to
// its columns, so that their sums need few registers, and groups wait for nobody but themselves.
constexpr int kGroupedThreads = 384;  // of which two blocks have room
constexpr int kMostGroups = 8;        // each has a named barrier, of which a block has 16

struct RowGroups {
  int width = 0;  // threads of a row, whole warps
  int count = 1;  // of a block

  int threads() const { return width * count; }
};

RowGroups GroupRows(int64_t columns) {
  RowGroups groups;
  groups.width = static_cast<int>(CeilDiv(columns, 8 * 32) * 32);
  groups.count = std::clamp(kGroupedThreads / groups.width, 1, kMostGroups);
  return groups;
}

__device__ void GroupBarrier(int group, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(threads) : "memory");
}

// Rows that are on their way while one is computed, and that one.
template <typename T>
constexpr int kGroupStages = sizeof(T) == 4 ? 2 : 3;
template <typename T>
using GroupRing = RowRing<T, 3, kGroupStages<T>>;

template <typename T>
__device__ void AskForRow(const NormBackwardArgs<T>& args, const GroupRing<T>& ring, int64_t row,
                          int column, int ahead) {
  if (row < args.rows && column < args.columns) {
    ring.Ask(0, ahead, args.dy.At(row, column));
    ring.Ask(1, ahead, args.x.At(row, column));
    if (args.dsum.data != nullptr) ring.Ask(2, ahead, args.dsum.At(row, column));
  }
  Commit();
}

// The dynamic shared memory is the ring, and at the end [groups, sums, columns] sums.
template <typename T, int kThreads>
__global__ void __launch_bounds__(kThreads, kThreads == kGroupedThreads ? 2 : 1)
    NormBackwardGroupKernel(NormBackwardArgs<T> args, RowGroups groups) {
  constexpr int V = 8;
  extern __shared__ __align__(16) uint8_t dynamic[];
  __shared__ float2 sums[2][32];  // by warp: of dy gamma, and of that times the normalised row
  const int group = static_cast<int>(threadIdx.x) / groups.width;
  const int thread = static_cast<int>(threadIdx.x) % groups.width;
  const int column = thread * V;
  const bool has_columns = column < args.columns;
  const int warps = groups.width / 32;
  const int first_warp = group * warps;
  const float share = 1.0F / static_cast<float>(args.columns);
  const DropoutMask mask = args.dropout.Mask();
  float gamma[V] = {};
  if (has_columns) Load<V>(args.gamma + column, gamma);
  float dgamma[V] = {};
  float dbeta[V] = {};
  float dbias[V] = {};
  const int64_t stride = static_cast<int64_t>(gridDim.x) * groups.count;
  // All groups of a block take as many turns: with one row less, a group waits with the others.
  int64_t first = static_cast<int64_t>(blockIdx.x) * groups.count;
  GroupRing<T> ring(reinterpret_cast<Packed<T, V>*>(dynamic) + threadIdx.x,
                    static_cast<int>(blockDim.x));
#pragma unroll
  for (int i = 0; i + 1 < kGroupStages<T>; ++i) {
    AskForRow(args, ring, first + group + i * stride, column, i);
  }
  const auto statistics = [&](int64_t of) {
    if (of >= args.rows) return float2{0, 0};
    return float2{args.mean != nullptr ? args.mean[of] : 0.0F, args.rstd[of]};
  };
  float2 next = statistics(first + group);
  for (int turn = 0; first < args.rows; first += stride, turn ^= 1, ring.Next()) {
    const int64_t row = first + group;
    const bool mine = has_columns && row < args.rows;
    AskForRow(args, ring, row + (kGroupStages<T> - 1) * stride, column, kGroupStages<T> - 1);
    const float mean = next.x;
    const float rstd = next.y;
    next = statistics(row + stride);
    WaitFor<kGroupStages<T> - 1>();
    float2 sum = {0, 0};
    if (mine) {
      const Packed<T, V> dys = ring.Get(0);
      const Packed<T, V> xs = ring.Get(1);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float dy = ToFloat(dys.values[i]);
        const float normal = (ToFloat(xs.values[i]) - mean) * rstd;
        dgamma[i] += dy * normal;
        dbeta[i] += dy;
        sum.x += dy * gamma[i];
        sum.y += dy * gamma[i] * normal;
      }
    }
    sum = {WarpSum(sum.x), WarpSum(sum.y)};
    if (thread % 32 == 0) sums[turn][first_warp + thread / 32] = sum;
    GroupBarrier(group, groups.width);
    sum = sums[turn][first_warp];
    for (int i = 1; i < warps; ++i) {
      sum.x += sums[turn][first_warp + i].x;
      sum.y += sums[turn][first_warp + i].y;
    }
    if (!mine) continue;
    const float shift = args.centred ? sum.x * share : 0.0F;
    const float slope = sum.y * share;
    float dx[V] = {};
    if (args.dsum.data != nullptr) {
      const Packed<T, V> dsums = ring.Get(2);
#pragma unroll
      for (int i = 0; i < V; ++i) dx[i] = ToFloat(dsums.values[i]);
    }
    const Packed<T, V> dys = ring.Get(0);
    const Packed<T, V> xs = ring.Get(1);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float normal = (ToFloat(xs.values[i]) - mean) * rstd;
      dx[i] += rstd * (ToFloat(dys.values[i]) * gamma[i] - shift - normal * slope);
    }
    StoreGradients<T, V>(args, mask, row, column, dx);
#pragma unroll
    for (int i = 0; i < V; ++i) dbias[i] += dx[i];
  }
  WaitFor<0>();
  __syncthreads();
  auto* room = reinterpret_cast<float*>(dynamic);
  const int elements = args.sums * args.columns;
  float* part = args.parts + static_cast<int64_t>(blockIdx.x) * elements;
  float* kept = groups.count == 1 ? part : room + static_cast<int64_t>(group) * elements;
  if (has_columns) {
    Store<V>(kept + column, dgamma);
    Store<V>(kept + args.columns + column, dbeta);
    if (args.sums == kMostSums) Store<V>(kept + 2 * args.columns + column, dbias);
  }
  if (groups.count == 1) return;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < elements; i += static_cast<int>(blockDim.x)) {
    float sum = room[i];
    for (int k = 1; k < groups.count; ++k) sum += room[k * elements + i];
    part[i] = sum;
  }
}

// Where the sums go, one after the other; null: nowhere.
struct SumTargets {
  void* out[kMostSums];
};

// Adds up the parts of each sum (blockIdx.y): 32 columns a block, 32 threads for each.
__global__ void __launch_bounds__(1024) AddParts(const float* parts, int count, int columns,
                                                 SumTargets targets, DType dtype, bool add) {
  __shared__ float sums[32][33];
  void* out = targets.out[blockIdx.y];
  if (out == nullptr) return;
  const int column = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  float sum = 0;
  if (column < columns) {
    const float* at = parts + blockIdx.y * columns + column;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.y); i < count; i += 32) {
      sum += at[static_cast<int64_t>(i) * gridDim.y * columns];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  const float total = WarpSum(sums[threadIdx.x][threadIdx.y]);
  const int target = static_cast<int>(blockIdx.x * 32 + threadIdx.y);
  if (threadIdx.x == 0 && target < columns) WriteOrAdd(out, dtype, target, total, add);
}

// Returns its blocks, which each have left a part; 0 where rows are too long for it.
template <typename T>
unsigned LaunchGroups(const NormBackwardArgs<T>& args, cudaStream_t stream) {
  const RowGroups groups = GroupRows(args.columns);
  const size_t bytes = std::max(
      sizeof(float) * static_cast<size_t>(args.sums * groups.count) *
          static_cast<size_t>(args.columns),
      GroupRing<T>::BytesPerThread() * static_cast<size_t>(groups.threads()));
  const int most = MostSharedMemory();
  if (groups.threads() > 1024 || static_cast<int64_t>(bytes) > most) return 0;
  auto* kernel = NormBackwardGroupKernel<T, 1024>;
  if (groups.threads() <= 512) kernel = NormBackwardGroupKernel<T, 512>;
  if (groups.threads() <= kGroupedThreads) kernel = NormBackwardGroupKernel<T, kGroupedThreads>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  const auto blocks =
      static_cast<unsigned>(std::min<int64_t>(CeilDiv(args.rows, groups.count), kNormParts));
  kernel<<<blocks, groups.threads(), bytes, stream>>>(args, groups);
  return blocks;
}

}  // namespace

void RunNormBackward(const OpCall& call, const Launch& launch) {
  const TensorView dy = Operand(call.inputs, 0);
  const TensorView x = Operand(call.inputs, 1);
  const TensorView dsum = Operand(call.inputs, 5);
  const TensorView dx = Operand(call.outputs, 0);
  const TensorView dresidual = Operand(call.outputs, 1);
  const TensorView dgamma = Operand(call.outputs, 2);
  const TensorView dbeta = Operand(call.outputs, 3);
  const TensorView dbias = Operand(call.outputs, 4);
  const bool add = call.step.micro_step > 0;
  auto* parts = reinterpret_cast<float*>(WorkspaceOf(call));
  const bool wide = IsWide(dy) && IsWide(x) && IsWide(dsum) && IsWide(dx) && IsWide(dresidual);
  unsigned blocks = 0;
  int sums = dbias ? kMostSums : 2;
  WithTypeAndWidth(dy.dtype, wide, [&](auto tag, auto width) {
    using T = typename decltype(tag)::Type;
    constexpr int V = decltype(width)::kValue;
    DropoutArgs dropout = DropoutOf(call, launch);
    if (!dresidual) dropout.threshold = 0;
    NormBackwardArgs<T> args{.dy = RowsOf<const T>(dy),
                                   .x = RowsOf<const T>(x),
                                   .dsum = RowsOf<const T>(dsum),
                                   .gamma = Operand(call.inputs, 2).As<const T>(),
                                   .mean = Operand(call.inputs, 3).As<const float>(),
                                   .rstd = Operand(call.inputs, 4).As<const float>(),
                                   .dx = RowsOf<T>(dx),
                                   .dresidual = RowsOf<T>(dresidual),
                                   .parts = parts,
                                   .sums = sums,
                                   .dropout = dropout,
                                   .rows = dy.rows(),
                                   .columns = static_cast<int>(dy.cols()),
                                   .centred = call.attributes.norm == graph::NormKind::kLayerNorm,
                                   .add = call.attributes.accumulate};
    if constexpr (V == 8) blocks = LaunchGroups(args, launch.stream);
    if (blocks != 0) return;
    args.sums = sums = 2;
    blocks = static_cast<unsigned>(std::min<int64_t>(dy.rows(), kNormParts));
    const RowPlan plan = PlanRow(dy.cols(), V);
    WithVectors(plan.vectors, [&](auto vectors) {
      NormBackwardKernel<T, V, decltype(vectors)::kValue>
          <<<blocks, plan.threads, 0, launch.stream>>>(args);
    });
  });
  const DType weight = dgamma ? dgamma.dtype : dbeta.dtype;
  const dim3 grid(static_cast<unsigned>(CeilDiv(dy.cols(), 32)), static_cast<unsigned>(sums));
  AddParts<<<grid, dim3(32, 32), 0, launch.stream>>>(
      parts, static_cast<int>(blocks), static_cast<int>(dy.cols()),
      SumTargets{dgamma.data, dbeta.data, dbias.data}, weight, add);
  if (dbias && sums < kMostSums) SumRows(launch, dx, dbias, 0, add, parts);
}

}  // namespace headroom::engine::cuda
