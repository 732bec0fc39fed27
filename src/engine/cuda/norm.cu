// SPDX-License-Identifier: Apache-2.0
//
// A block or a warp takes a row; what it normalises stays in registers between the passes over it.
#include "engine/cuda/row_ring.cuh"

namespace headroom::engine::cuda {
namespace {

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

// The same for short rows: one for each warp at a time, the next on its way. N vectors of 8 a lane.
constexpr int kWarpRows = 4;  // of a block
constexpr int kMostWarpVectors = 4;
constexpr int kWarpThreads = kWarpRows * 32;
template <typename T, int N>
using WarpRing = RowRing<T, 2 * N, 2>;

template <typename T, int N>
__device__ void AskForRow(const NormArgs<T>& args, const WarpRing<T, N>& ring, int64_t row,
                          int64_t rows, int ahead) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int column = (k * 32 + lane) * 8;
    if (row >= rows || column >= args.columns) continue;
    ring.Ask(k, ahead, args.x.At(row, column));
    if (args.residual.data != nullptr) ring.Ask(N + k, ahead, args.residual.At(row, column));
  }
  Commit();
}

template <typename T, int N>
__global__ void __launch_bounds__(kWarpThreads, 6) NormWarpKernel(NormArgs<T> args, int64_t rows) {
  constexpr int V = 8;
  extern __shared__ __align__(16) uint8_t dynamic[];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto columns = static_cast<float>(args.columns);
  const DropoutMask mask = args.dropout.Mask();
  WarpRing<T, N> ring(reinterpret_cast<Packed<T, V>*>(dynamic) + threadIdx.x, kWarpThreads);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarpRows;
  int64_t row = static_cast<int64_t>(blockIdx.x) * kWarpRows + threadIdx.x / 32;
  AskForRow<T, N>(args, ring, row, rows, 0);
  for (; row < rows; row += stride, ring.Next()) {
    AskForRow<T, N>(args, ring, row + stride, rows, 1);
    WaitFor<1>();
    Packed<T, V> x[N];  // at last the sum, which has this type anyway
    float total = 0;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int column = (k * 32 + lane) * V;
      if (column >= args.columns) continue;
      x[k] = ring.Get(k);
      if (args.residual.data != nullptr) {
        const Packed<T, V> residual = ring.Get(N + k);
        float factors[V];
        if (mask.threshold != 0) {
          DropFactors<V>(mask, static_cast<uint64_t>(row * args.columns + column), factors);
        }
#pragma unroll
        for (int i = 0; i < V; ++i) {
          float value = ToFloat(x[k].values[i]);
          if (mask.threshold != 0) value *= factors[i];
          x[k].values[i] = FromFloat<T>(value + ToFloat(residual.values[i]));
        }
        if (args.sum.data != nullptr) {
          *reinterpret_cast<Packed<T, V>*>(args.sum.At(row, column)) = x[k];
        }
      }
#pragma unroll
      for (int i = 0; i < V; ++i) total += ToFloat(x[k].values[i]);
    }
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
}

template <typename T, int N>
void LaunchNormWarp(const NormArgs<T>& args, int64_t rows, cudaStream_t stream) {
  constexpr auto kBytes = static_cast<int>(WarpRing<T, N>::BytesPerThread() * kWarpThreads);
  const auto kernel = NormWarpKernel<T, N>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  kernel<<<ResidentBlocks(kernel, kWarpThreads, kBytes, CeilDiv(rows, kWarpRows)), kWarpThreads,
           kBytes, stream>>>(args, rows);
}

}  // namespace

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
        const auto run = [&](auto vectors) {
          LaunchNormWarp<T, decltype(vectors)::kValue>(args, x.rows(), launch.stream);
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

}  // namespace headroom::engine::cuda
