// SPDX-License-Identifier: Apache-2.0
//
// A block or a warp takes a row; what it normalises stays in registers between the passes over it.
#include "engine/cuda/device_types.cuh"
#include "engine/cuda/workspace.h"

namespace headroom::engine::cuda {
namespace {

// Threads of a block, and vectors of V elements that each of them keeps.
struct RowPlan {
  int threads = 32;
  int vectors = 1;
};

RowPlan PlanRow(int64_t columns, int width) {
  const int64_t vectors = CeilDiv(columns, width);
  RowPlan plan;
  plan.threads = static_cast<int>(std::min<int64_t>(CeilDiv(vectors, 32) * 32, 256));
  if (vectors > 1024) plan.threads = 1024;
  const int64_t each = CeilDiv(vectors, plan.threads);
  while (plan.vectors < each) plan.vectors *= 2;
  HEADROOM_CHECK(plan.vectors <= 8, "a norm of more columns than the CUDA backend takes");
  return plan;
}

// function(std::integral_constant-like width) for the vectors of a plan.
template <typename Function>
void WithVectors(int vectors, const Function& function) {
  if (vectors == 1) return function(Width<1>{});
  if (vectors == 2) return function(Width<2>{});
  if (vectors == 4) return function(Width<4>{});
  return function(Width<8>{});
}

template <typename T>
struct NormArgs {
  Rows<const T> x, residual;
  const T* gamma;
  const T* beta;
  Rows<T> y, sum;
  float* mean;
  float* rstd;
  DropoutArgs dropout;
  int columns;
  float eps;
  bool centred;
};

template <typename T, int V, int N>
__global__ void __launch_bounds__(1024) NormKernel(NormArgs<T> args) {
  __shared__ float room[2 * 32];
  const int64_t row = blockIdx.x;
  const int threads = static_cast<int>(blockDim.x);
  float x[N][V];
  float total[1] = {};
  const DropoutMask mask = args.dropout.Mask();
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int column = (k * threads + static_cast<int>(threadIdx.x)) * V;
    if (column >= args.columns) continue;
    Load<V>(args.x.At(row, column), x[k]);
    if (args.residual.data != nullptr) {
      float other[V];
      if (mask.threshold != 0) {
        DropFactors<V>(mask, static_cast<uint64_t>(row * args.columns + column), other);
#pragma unroll
        for (int i = 0; i < V; ++i) x[k][i] *= other[i];
      }
      Load<V>(args.residual.At(row, column), other);
#pragma unroll
      for (int i = 0; i < V; ++i) x[k][i] = Rounded<T>(x[k][i] + other[i]);
      if (args.sum.data != nullptr) Store<V>(args.sum.At(row, column), x[k]);
    }
#pragma unroll
    for (int i = 0; i < V; ++i) total[0] += x[k][i];
  }
  float mean = 0;
  if (args.centred) {
    BlockSum<1>(total, room);
    mean = total[0] / static_cast<float>(args.columns);
  }
  float squares[1] = {};
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if ((k * threads + static_cast<int>(threadIdx.x)) * V >= args.columns) continue;
#pragma unroll
    for (int i = 0; i < V; ++i) squares[0] += (x[k][i] - mean) * (x[k][i] - mean);
  }
  BlockSum<1>(squares, room + 32);
  const float rstd = 1.0F / sqrtf(squares[0] / static_cast<float>(args.columns) + args.eps);
  if (threadIdx.x == 0) {
    if (args.mean != nullptr) args.mean[row] = mean;
    if (args.rstd != nullptr) args.rstd[row] = rstd;
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int column = (k * threads + static_cast<int>(threadIdx.x)) * V;
    if (column >= args.columns) continue;
    float scale[V];
    float shift[V] = {};
    Load<V>(args.gamma + column, scale);
    if (args.beta != nullptr) Load<V>(args.beta + column, shift);
#pragma unroll
    for (int i = 0; i < V; ++i) x[k][i] = (x[k][i] - mean) * rstd * scale[i] + shift[i];
    Store<V>(args.y.At(row, column), x[k]);
  }
}

// The same for short rows: one for each warp, which waits for nobody. N vectors of 8 a lane, asked
// for before anything is computed.
constexpr int kWarpRows = 4;  // of a block
constexpr int kMostWarpVectors = 4;

template <typename T, int N>
__global__ void __launch_bounds__(kWarpRows * 32, 6)
    NormWarpKernel(NormArgs<T> args, int64_t rows) {
  constexpr int V = 8;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarpRows + threadIdx.x / 32;
  if (row >= rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const DropoutMask mask = args.dropout.Mask();
  Packed<T, V> x[N] = {};  // at last the sum, which has this type anyway
  Packed<T, V> residual[N] = {};
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int column = (k * 32 + lane) * V;
    if (column >= args.columns) continue;
    x[k] = *reinterpret_cast<const Packed<T, V>*>(args.x.At(row, column));
    if (args.residual.data == nullptr) continue;
    residual[k] = *reinterpret_cast<const Packed<T, V>*>(args.residual.At(row, column));
  }
  float total = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int column = (k * 32 + lane) * V;
    if (column >= args.columns) continue;
    if (args.residual.data != nullptr) {
      float factors[V];
      if (mask.threshold != 0) {
        DropFactors<V>(mask, static_cast<uint64_t>(row * args.columns + column), factors);
      }
#pragma unroll
      for (int i = 0; i < V; ++i) {
        float value = ToFloat(x[k].values[i]);
        if (mask.threshold != 0) value *= factors[i];
        x[k].values[i] = FromFloat<T>(value + ToFloat(residual[k].values[i]));
      }
      if (args.sum.data != nullptr) {
        *reinterpret_cast<Packed<T, V>*>(args.sum.At(row, column)) = x[k];
      }
    }
#pragma unroll
    for (int i = 0; i < V; ++i) total += ToFloat(x[k].values[i]);
  }
  const auto columns = static_cast<float>(args.columns);
  const float mean = args.centred ? WarpSum(total) / columns : 0.0F;
  float squares = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if ((k * 32 + lane) * V >= args.columns) continue;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float away = ToFloat(x[k].values[i]) - mean;
      squares += away * away;
    }
  }
  const float rstd = 1.0F / sqrtf(WarpSum(squares) / columns + args.eps);
  if (lane == 0) {
    if (args.mean != nullptr) args.mean[row] = mean;
    if (args.rstd != nullptr) args.rstd[row] = rstd;
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int column = (k * 32 + lane) * V;
    if (column >= args.columns) continue;
    float scale[V];
    float shift[V] = {};
    Load<V>(args.gamma + column, scale);
    if (args.beta != nullptr) Load<V>(args.beta + column, shift);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      scale[i] = (ToFloat(x[k].values[i]) - mean) * rstd * scale[i] + shift[i];
    }
    Store<V>(args.y.At(row, column), scale);
  }
}

template <typename T>
struct NormBackwardArgs {
  Rows<const T> dy, x, dsum;
  const T* gamma;
  const float* mean;
  const float* rstd;
  Rows<T> dx, dresidual;
  float* parts;  // [kNormParts, 2, columns]
  DropoutArgs dropout;
  int64_t rows;
  int columns;
  bool centred;
  bool add;
};

// What a row's elements from `column` on owe the residual, and through its dropout the branch.
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
    float* part = args.parts + static_cast<int64_t>(blockIdx.x) * 2 * args.columns;
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

// What a thread reads of a row.
template <typename T>
struct RowPart {
  Packed<T, 8> dy, x, dsum;
  float mean;
  float rstd;
};

template <typename T>
__device__ RowPart<T> LoadRow(const NormBackwardArgs<T>& args, int64_t row, int column) {
  RowPart<T> part = {};
  if (row >= args.rows) return part;
  if (column < args.columns) {
    part.dy = *reinterpret_cast<const Packed<T, 8>*>(args.dy.At(row, column));
    part.x = *reinterpret_cast<const Packed<T, 8>*>(args.x.At(row, column));
    if (args.dsum.data != nullptr) {
      part.dsum = *reinterpret_cast<const Packed<T, 8>*>(args.dsum.At(row, column));
    }
  }
  part.mean = args.mean != nullptr ? args.mean[row] : 0.0F;
  part.rstd = args.rstd[row];
  return part;
}

// The next row is on its way while one is computed.
template <typename T, int kThreads>
__global__ void __launch_bounds__(kThreads, kThreads == kGroupedThreads ? 2 : 1)
    NormBackwardGroupKernel(NormBackwardArgs<T> args, RowGroups groups) {
  constexpr int V = 8;
  extern __shared__ float room[];  // [groups, 2, columns]
  __shared__ float2 sums[2][32];   // by warp: of dy gamma, and of that times the normalised row
  const int group = static_cast<int>(threadIdx.x) / groups.width;
  const int thread = static_cast<int>(threadIdx.x) % groups.width;
  const int column = thread * V;
  const bool mine = column < args.columns;
  const int warps = groups.width / 32;
  const int first_warp = group * warps;
  const float share = 1.0F / static_cast<float>(args.columns);
  const DropoutMask mask = args.dropout.Mask();
  float gamma[V] = {};
  if (mine) Load<V>(args.gamma + column, gamma);
  float dgamma[V] = {};
  float dbeta[V] = {};
  const int64_t stride = static_cast<int64_t>(gridDim.x) * groups.count;
  int64_t row = static_cast<int64_t>(blockIdx.x) * groups.count + group;
  RowPart<T> next = LoadRow(args, row, column);
  for (int turn = 0; row < args.rows; row += stride, turn ^= 1) {
    const RowPart<T> part = next;
    next = LoadRow(args, row + stride, column);
    float2 sum = {0, 0};
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float dy = ToFloat(part.dy.values[i]);
      const float normal = (ToFloat(part.x.values[i]) - part.mean) * part.rstd;
      dgamma[i] += dy * normal;
      dbeta[i] += dy;
      sum.x += dy * gamma[i];
      sum.y += dy * gamma[i] * normal;
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
    float dx[V];
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float normal = (ToFloat(part.x.values[i]) - part.mean) * part.rstd;
      dx[i] = part.rstd * (ToFloat(part.dy.values[i]) * gamma[i] - shift - normal * slope) +
              ToFloat(part.dsum.values[i]);
    }
    StoreGradients<T, V>(args, mask, row, column, dx);
  }
  float* part = args.parts + static_cast<int64_t>(blockIdx.x) * 2 * args.columns;
  float* kept = groups.count == 1 ? part : room + static_cast<int64_t>(group) * 2 * args.columns;
  if (mine) {
    Store<V>(kept + column, dgamma);
    Store<V>(kept + args.columns + column, dbeta);
  }
  if (groups.count == 1) return;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < 2 * args.columns;
       i += static_cast<int>(blockDim.x)) {
    float sum = room[i];
    for (int k = 1; k < groups.count; ++k) sum += room[k * 2 * args.columns + i];
    part[i] = sum;
  }
}

// Adds up the parts of dgamma and dbeta (blockIdx.y): 32 columns a block, 32 threads for each.
__global__ void __launch_bounds__(1024) AddParts(const float* parts, int count, int columns,
                                                 void* dgamma, void* dbeta, DType dtype, bool add) {
  __shared__ float sums[32][33];
  void* out = blockIdx.y == 0 ? dgamma : dbeta;
  if (out == nullptr) return;
  const int column = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  float sum = 0;
  if (column < columns) {
    const float* at = parts + blockIdx.y * columns + column;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.y); i < count; i += 32) {
      sum += at[static_cast<int64_t>(i) * 2 * columns];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  const float total = WarpSum(sums[threadIdx.x][threadIdx.y]);
  const int target = static_cast<int>(blockIdx.x * 32 + threadIdx.y);
  if (threadIdx.x == 0 && target < columns) WriteOrAdd(out, dtype, target, total, add);
}

constexpr int kRowsAhead = 8;  // that a thread asks for before it adds them

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
    for (int64_t row = first + threadIdx.y; row < last; row += kRowsAhead * 8) {
      Packed<T, V> values[kRowsAhead] = {};
#pragma unroll
      for (int k = 0; k < kRowsAhead; ++k) {
        const int64_t at = row + k * 8;
        if (at >= last || (has_index && index[at] != wanted)) continue;
        values[k] = *reinterpret_cast<const Packed<T, V>*>(x.At(at, column));
      }
#pragma unroll
      for (int k = 0; k < kRowsAhead; ++k) {
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] += ToFloat(values[k].values[i]);
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

void RunNorm(const OpCall& call, const Launch& launch) {
  const TensorView x = Operand(call.inputs, 0);
  const TensorView residual = Operand(call.inputs, 1);
  const TensorView gamma = Operand(call.inputs, 2);
  const TensorView beta = Operand(call.inputs, 3);
  const TensorView y = Operand(call.outputs, 0);
  const TensorView sum = Operand(call.outputs, 1);
  const bool wide = IsWide(x) && IsWide(residual) && IsWide(y) && IsWide(sum);
  WithTypeAndWidth(x.dtype, wide, [&](auto tag, auto width) {
    using T = typename decltype(tag)::Type;
    constexpr int V = decltype(width)::kValue;
    const NormArgs<T> args{.x = RowsOf<const T>(x),
                           .residual = RowsOf<const T>(residual),
                           .gamma = gamma.As<const T>(),
                           .beta = beta.As<const T>(),
                           .y = RowsOf<T>(y),
                           .sum = RowsOf<T>(sum),
                           .mean = Operand(call.outputs, 2).As<float>(),
                           .rstd = Operand(call.outputs, 3).As<float>(),
                           .dropout = DropoutOf(call, launch),
                           .columns = static_cast<int>(x.cols()),
                           .eps = call.attributes.eps,
                           .centred = call.attributes.norm == graph::NormKind::kLayerNorm};
    if constexpr (V == 8) {
      const int64_t each = CeilDiv(x.cols(), V * 32);
      if (each <= kMostWarpVectors) {
        const auto blocks = static_cast<unsigned>(CeilDiv(x.rows(), kWarpRows));
        const auto run = [&](auto vectors) {
          NormWarpKernel<T, decltype(vectors)::kValue>
              <<<blocks, kWarpRows * 32, 0, launch.stream>>>(args, x.rows());
        };
        if (each == 1) return run(Width<1>{});
        if (each == 2) return run(Width<2>{});
        if (each == 3) return run(Width<3>{});
        return run(Width<4>{});
      }
    }
    const RowPlan plan = PlanRow(x.cols(), V);
    WithVectors(plan.vectors, [&](auto vectors) {
      NormKernel<T, V, decltype(vectors)::kValue>
          <<<static_cast<unsigned>(x.rows()), plan.threads, 0, launch.stream>>>(args);
    });
  });
}

void RunNormBackward(const OpCall& call, const Launch& launch) {
  const TensorView dy = Operand(call.inputs, 0);
  const TensorView x = Operand(call.inputs, 1);
  const TensorView dsum = Operand(call.inputs, 5);
  const TensorView dx = Operand(call.outputs, 0);
  const TensorView dresidual = Operand(call.outputs, 1);
  const TensorView dgamma = Operand(call.outputs, 2);
  const TensorView dbeta = Operand(call.outputs, 3);
  auto* parts = reinterpret_cast<float*>(WorkspaceOf(call));
  const bool wide = IsWide(dy) && IsWide(x) && IsWide(dsum) && IsWide(dx) && IsWide(dresidual);
  const RowGroups groups = GroupRows(dy.cols());
  const bool grouped = wide && groups.threads() <= 1024;
  const auto blocks = static_cast<unsigned>(
      std::min<int64_t>(grouped ? CeilDiv(dy.rows(), groups.count) : dy.rows(), kNormParts));
  WithTypeAndWidth(dy.dtype, wide, [&](auto tag, auto width) {
    using T = typename decltype(tag)::Type;
    constexpr int V = decltype(width)::kValue;
    DropoutArgs dropout = DropoutOf(call, launch);
    if (!dresidual) dropout.threshold = 0;
    const NormBackwardArgs<T> args{.dy = RowsOf<const T>(dy),
                                   .x = RowsOf<const T>(x),
                                   .dsum = RowsOf<const T>(dsum),
                                   .gamma = Operand(call.inputs, 2).As<const T>(),
                                   .mean = Operand(call.inputs, 3).As<const float>(),
                                   .rstd = Operand(call.inputs, 4).As<const float>(),
                                   .dx = RowsOf<T>(dx),
                                   .dresidual = RowsOf<T>(dresidual),
                                   .parts = parts,
                                   .dropout = dropout,
                                   .rows = dy.rows(),
                                   .columns = static_cast<int>(dy.cols()),
                                   .centred = call.attributes.norm == graph::NormKind::kLayerNorm,
                                   .add = call.attributes.accumulate};
    if constexpr (V == 8) {
      if (grouped) {
        const size_t bytes =
            groups.count == 1 ? 0
                              : 2 * sizeof(float) * static_cast<size_t>(groups.count * dy.cols());
        auto* kernel = NormBackwardGroupKernel<T, 1024>;
        if (groups.threads() <= 512) kernel = NormBackwardGroupKernel<T, 512>;
        if (groups.threads() <= kGroupedThreads) {
          kernel = NormBackwardGroupKernel<T, kGroupedThreads>;
        }
        kernel<<<blocks, groups.threads(), bytes, launch.stream>>>(args, groups);
        return;
      }
    }
    const RowPlan plan = PlanRow(dy.cols(), V);
    WithVectors(plan.vectors, [&](auto vectors) {
      NormBackwardKernel<T, V, decltype(vectors)::kValue>
          <<<blocks, plan.threads, 0, launch.stream>>>(args);
    });
  });
  const DType weight = dgamma ? dgamma.dtype : dbeta.dtype;
  const dim3 grid(static_cast<unsigned>(CeilDiv(dy.cols(), 32)), 2);
  AddParts<<<grid, dim3(32, 32), 0, launch.stream>>>(parts, static_cast<int>(blocks),
                                                     static_cast<int>(dy.cols()), dgamma.data,
                                                     dbeta.data, weight, call.step.micro_step > 0);
}

}  // namespace headroom::engine::cuda
