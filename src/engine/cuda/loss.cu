// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/cuda/async_copy.cuh"
#include "engine/cuda/device_types.cuh"

namespace headroom::engine::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kStreamThreads = 1024;
constexpr int64_t kLeastStreamed = 16 << 10;  // below, a row is in a cache anyway

template <typename T>
struct LossArgs {
  Rows<T> logits;
  Indices labels;
  int64_t first_label;
  int columns;
  int ignore_index;
  float smoothing;
  const StepScalars* step;
  float* losses;
  bool training;
};

struct MaxSum {
  float max;
  float sum;
};
__device__ MaxSum Joined(MaxSum a, MaxSum b) {
  const float max = fmaxf(a.max, b.max);
  if (max == -INFINITY) return {max, a.sum + b.sum};  // 0, or what is no number
  return {max, a.sum * __expf(a.max - max) + b.sum * __expf(b.max - max)};
}

__device__ MaxSum WarpJoined(MaxSum x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    x = Joined(
        x, {__shfl_xor_sync(0xffffffffU, x.max, step), __shfl_xor_sync(0xffffffffU, x.sum, step)});
  }
  return x;
}

// `room` is in use until the block's next barrier.
__device__ MaxSum BlockJoined(MaxSum x, MaxSum* room) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  x = WarpJoined(x);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) room[threadIdx.x / 32] = x;
  __syncthreads();
  return WarpJoined(lane < warps ? room[lane] : MaxSum{-INFINITY, 0});
}

// What a row adds to the loss, from the log-sum of its logits and, with smoothing, from their sum.
template <typename T>
__device__ float RowLoss(const LossArgs<T>& args, float log_sum, float target, float plain) {
  const float nll = log_sum - target;
  if (args.smoothing == 0) return nll;
  const float uniform = log_sum - plain / static_cast<float>(args.columns);
  return (1 - args.smoothing) * nll + args.smoothing * uniform;
}

// How many of the V elements from `column` on are no padding.
template <int V>
__device__ int ColumnsFrom(int column, int columns) {
  return columns - column < V ? columns - column : V;
}

// Adds V logits to a sum of exponentials.
template <typename T, int V>
__device__ void AddLogits(const float (&x)[V], int count, MaxSum& sum) {
  float max = sum.max;
#pragma unroll
  for (int i = 0; i < V; ++i) max = i < count ? fmaxf(max, x[i]) : max;
  if (max == -INFINITY) {  // nothing so far but what fmaxf passes over
#pragma unroll
    for (int i = 0; i < V; ++i) sum.sum = i < count && isnan(x[i]) ? x[i] : sum.sum;
    return;
  }
  sum.sum *= Exp<T>(sum.max - max);
  sum.max = max;
#pragma unroll
  for (int i = 0; i < V; ++i) sum.sum += i < count ? Exp<T>(x[i] - max) : 0.0F;
}

// From logits of one row to their gradients.
template <typename T>
struct RowGradient {
  float log_sum;
  float factor;
  float spread;  // of the label's probability, over all columns
  float kept;
  int label;

  template <int V>
  __device__ void Apply(int column, int columns, float (&x)[V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] = (Exp<T>(x[i] - log_sum) - spread) * factor;
    const int at = label - column;
    if (at >= 0 && at < V) {
#pragma unroll
      for (int i = 0; i < V; ++i) x[i] -= i == at ? kept * factor : 0.0F;
    }
    if (column + V <= columns) return;
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] = column + i < columns ? x[i] : 0.0F;
  }
};

template <typename T>
__device__ RowGradient<T> GradientOf(const LossArgs<T>& args) {
  return {.factor = args.step->loss_scale / args.step->targets,
          .spread = args.smoothing / static_cast<float>(args.columns),
          .kept = 1 - args.smoothing};
}

// A row that is ignored.
template <typename T, int V>
__device__ void StoreNothing(const LossArgs<T>& args, int64_t row) {
  if (threadIdx.x == 0) args.losses[row] = 0;
  if (!args.training) return;
  const float zero[V] = {};
  for (int c = static_cast<int>(threadIdx.x) * V; c < args.columns;
       c += static_cast<int>(blockDim.x) * V) {
    Store<V>(args.logits.At(row, c), zero);
  }
}

// One row a block: a pass for the log-sum, a second that turns the logits into their gradient. V
// elements that lie beyond the columns are padding of the row.
template <typename T, int V>
__global__ void __launch_bounds__(kThreads) LossKernel(LossArgs<T> args) {
  __shared__ MaxSum joined[32];
  __shared__ float room[32];
  const int64_t row = blockIdx.x;
  const int64_t label = args.labels[args.first_label + row];
  const int columns = args.columns;
  if (label == args.ignore_index) return StoreNothing<T, V>(args, row);
  MaxSum sum{-INFINITY, 0};
  float plain[1] = {};
#pragma unroll 2
  for (int c = static_cast<int>(threadIdx.x) * V; c < columns; c += kThreads * V) {
    float x[V];
    Load<V>(args.logits.At(row, c), x);
    const int count = ColumnsFrom<V>(c, columns);
    AddLogits<T, V>(x, count, sum);
#pragma unroll
    for (int i = 0; i < V; ++i) plain[0] += i < count ? x[i] : 0.0F;
  }
  sum = BlockJoined(sum, joined);
  RowGradient<T> gradient = GradientOf(args);
  gradient.log_sum = sum.max + logf(sum.sum);
  gradient.label = static_cast<int>(label);
  if (args.smoothing != 0) BlockSum<1>(plain, room);
  const float target = ToFloat(*args.logits.At(row, label));
  __syncthreads();
  if (threadIdx.x == 0) args.losses[row] = RowLoss(args, gradient.log_sum, target, plain[0]);
  if (!args.training) return;
#pragma unroll 2
  for (int c = static_cast<int>(threadIdx.x) * V; c < columns; c += kThreads * V) {
    float x[V];
    Load<V>(args.logits.At(row, c), x);
    gradient.Apply(c, columns, x);
    Store<V>(args.logits.At(row, c), x);
  }
}

// The same for training, with rows on their way into shared memory while the one before them is
// computed: a logit is read once and written once. A thread sees the vectors that it asked for
// itself, so that only the sums need the block.
template <typename T>
__global__ void __launch_bounds__(kStreamThreads, 1) LossStreamKernel(LossArgs<T> args, int rows) {
  constexpr int V = 16 / sizeof(T);
  extern __shared__ __align__(16) uint8_t rooms[];
  __shared__ MaxSum joined[2][32];
  __shared__ float room[32];
  const int columns = args.columns;
  const int vectors = (columns + V - 1) / V;
  auto* buffers = reinterpret_cast<Packed<T, V>*>(rooms);
  const auto fetch = [&](int64_t row, int turn) {
    if (row < rows && args.labels[args.first_label + row] != args.ignore_index) {
      const uint32_t to = SharedAddress(buffers + turn * vectors);
      for (int v = static_cast<int>(threadIdx.x); v < vectors; v += kStreamThreads) {
        CopyPiece(to + v * 16, args.logits.At(row, static_cast<int64_t>(v) * V), true);
      }
    }
    Commit();
  };
  int turn = 0;
  RowGradient<T> gradient = GradientOf(args);
  int sums = 0;  // whose turn it is among the rooms for sums: a row that is ignored has none
  fetch(blockIdx.x, turn);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
    fetch(row + gridDim.x, turn ^ 1);
    const int64_t label = args.labels[args.first_label + row];
    if (label == args.ignore_index) {
      StoreNothing<T, V>(args, row);
      continue;
    }
    WaitFor<1>();
    const Packed<T, V>* mine = buffers + turn * vectors;
    MaxSum sum{-INFINITY, 0};
    for (int v = static_cast<int>(threadIdx.x); v < vectors; v += kStreamThreads) {
      float x[V];
      Load<V>(mine[v].values, x);
      AddLogits<T, V>(x, ColumnsFrom<V>(v * V, columns), sum);
    }
    float plain[1] = {};
    for (int v = static_cast<int>(threadIdx.x); v < vectors && args.smoothing != 0;
         v += kStreamThreads) {
      const int count = ColumnsFrom<V>(v * V, columns);
      for (int i = 0; i < count; ++i) plain[0] += ToFloat(mine[v].values[i]);
    }
    sum = BlockJoined(sum, joined[sums]);
    sums ^= 1;
    gradient.log_sum = sum.max + logf(sum.sum);
    gradient.label = static_cast<int>(label);
    if (args.smoothing != 0) BlockSum<1>(plain, room);
    if (static_cast<int>(threadIdx.x) == gradient.label / V % kStreamThreads) {
      const float target = ToFloat(mine[gradient.label / V].values[gradient.label % V]);
      args.losses[row] = RowLoss(args, gradient.log_sum, target, plain[0]);
    }
    for (int v = static_cast<int>(threadIdx.x); v < vectors; v += kStreamThreads) {
      float x[V];
      Load<V>(mine[v].values, x);
      gradient.Apply(v * V, columns, x);
      Store<V>(args.logits.At(row, static_cast<int64_t>(v) * V), x);
    }
  }
}

__global__ void AddLosses(const float* losses, int rows, float* loss) {
  __shared__ double room[32];
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < rows; i += 1024) {
    sum += static_cast<double>(losses[i]);
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, step);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  sum = 0;
  for (const double part : room) sum += part;
  *loss += static_cast<float>(sum);
}

// Whether rows are long enough, and two of them fit into a block's shared memory.
template <typename T>
bool RunStream(const LossArgs<T>& args, int64_t rows, cudaStream_t stream) {
  const int64_t bytes = CeilDiv(args.columns * sizeof(T), 16) * 16;
  if (!args.training || bytes < kLeastStreamed) return false;
  const int most = MostSharedMemory();
  if (2 * bytes > most) return false;
  const auto kernel = LossStreamKernel<T>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  const int64_t blocks = std::min<int64_t>(rows, DeviceAttribute(cudaDevAttrMultiProcessorCount));
  kernel<<<static_cast<unsigned>(blocks), kStreamThreads, static_cast<size_t>(2 * bytes), stream>>>(
      args, static_cast<int>(rows));
  return true;
}

}  // namespace

void CrossEntropyRows(const OpCall& call, const Launch& launch, const TensorView& logits,
                      const TensorView& labels, int64_t first_label, const TensorView& loss,
                      float* row_losses) {
  // A row's padding belongs to it, so that its length needs no look.
  const bool wide = logits.stride() % 8 == 0 && reinterpret_cast<uintptr_t>(logits.data) % 16 == 0;
  WithTypeAndWidth(logits.dtype, wide, [&](auto tag, auto width) {
    using T = typename decltype(tag)::Type;
    constexpr int V = decltype(width)::kValue;
    const LossArgs<T> args{.logits = RowsOf<T>(logits),
                           .labels = IndicesOf(labels),
                           .first_label = first_label,
                           .columns = static_cast<int>(logits.cols()),
                           .ignore_index = call.attributes.ignore_index,
                           .smoothing = call.attributes.label_smoothing,
                           .step = launch.scalars,
                           .losses = row_losses,
                           .training = call.step.training};
    if (wide && RunStream(args, logits.rows(), launch.stream)) return;
    LossKernel<T, V><<<static_cast<unsigned>(logits.rows()), kThreads, 0, launch.stream>>>(args);
  });
  AddLosses<<<1, 1024, 0, launch.stream>>>(row_losses, static_cast<int>(logits.rows()),
                                           loss.As<float>());
}

void RunCrossEntropy(const OpCall& call, const Launch& launch) {
  CrossEntropyRows(call, launch, call.inputs[0], call.inputs[1], 0, call.outputs[0],
                   reinterpret_cast<float*>(WorkspaceOf(call)));
}

}  // namespace headroom::engine::cuda
