// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/cuda/device_types.cuh"

namespace headroom::engine::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kCachedThreads = 1024;
constexpr size_t kLeastCached = 16 << 10;  // below, a row is in a cache anyway

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
  if (max == -INFINITY) return {max, 0.0F};
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

__device__ MaxSum BlockJoined(MaxSum x) {
  __shared__ MaxSum room[32];
  const int warps = static_cast<int>(blockDim.x) / 32;
  x = WarpJoined(x);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) room[threadIdx.x / 32] = x;
  __syncthreads();
  return WarpJoined(lane < warps ? room[lane] : MaxSum{-INFINITY, 0});
}

// One row a block: a pass for the log-sum, a second that turns the logits into their gradient. V
// elements that lie beyond the columns are padding of the row. A cached row is read once: the
// second pass finds it in shared memory.
template <typename T, int V, bool kCached>
__global__ void __launch_bounds__(kCachedThreads) LossKernel(LossArgs<T> args) {
  extern __shared__ __align__(16) uint8_t cached[];
  auto* cache = reinterpret_cast<Packed<T, V>*>(cached);
  __shared__ float room[32];
  const int threads = static_cast<int>(blockDim.x);
  const int64_t row = blockIdx.x;
  const int64_t label = args.labels[args.first_label + row];
  const int columns = args.columns;
  if (label == args.ignore_index) {
    if (threadIdx.x == 0) args.losses[row] = 0;
    if (!args.training) return;
    const float zero[V] = {};
    for (int c = static_cast<int>(threadIdx.x) * V; c < columns; c += threads * V) {
      Store<V>(args.logits.At(row, c), zero);
    }
    return;
  }
  MaxSum sum{-INFINITY, 0};
  float plain[1] = {};
  for (int c = static_cast<int>(threadIdx.x) * V; c < columns; c += threads * V) {
    float x[V];
    Load<V>(args.logits.At(row, c), x);
    if constexpr (kCached) Store<V>(cache[c / V].values, x);
    float max = sum.max;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (c + i >= columns) x[i] = -INFINITY;
      max = fmaxf(max, x[i]);
    }
    sum.sum = max == -INFINITY ? 0.0F : sum.sum * __expf(sum.max - max);
    sum.max = max;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (c + i >= columns) continue;
      sum.sum += expf(x[i] - max);
      plain[0] += x[i];
    }
  }
  sum = BlockJoined(sum);
  const float log_sum = sum.max + logf(sum.sum);
  if (args.smoothing != 0) BlockSum<1>(plain, room);
  const float target = ToFloat(*args.logits.At(row, label));
  __syncthreads();
  if (threadIdx.x == 0) {
    const float nll = log_sum - target;
    const float uniform = log_sum - plain[0] / static_cast<float>(columns);
    args.losses[row] =
        args.smoothing == 0 ? nll : (1 - args.smoothing) * nll + args.smoothing * uniform;
  }
  if (!args.training) return;
  const float factor = args.step->loss_scale / args.step->targets;
  const float kept = 1 - args.smoothing;
  const float spread = args.smoothing / static_cast<float>(columns);
  for (int c = static_cast<int>(threadIdx.x) * V; c < columns; c += threads * V) {
    float x[V];
    Load<V>(kCached ? cache[c / V].values : args.logits.At(row, c), x);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      x[i] = (expf(x[i] - log_sum) - spread) * factor;
      if (c + i == label) x[i] -= kept * factor;
      if (c + i >= columns) x[i] = 0;
    }
    Store<V>(args.logits.At(row, c), x);
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

// What a block can have beside the few bytes of its own.
size_t SharedMemory() {
  constexpr int kOwn = 1024;
  int device = 0;
  int bytes = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return static_cast<size_t>(std::max(bytes - kOwn, 0));
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
    const auto rows = static_cast<unsigned>(logits.rows());
    const size_t bytes = static_cast<size_t>(CeilDiv(logits.cols(), V) * V) * sizeof(T);
    if (V > 1 && call.step.training && bytes >= kLeastCached && bytes <= SharedMemory()) {
      const auto kernel = LossKernel<T, V, true>;
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes));
      kernel<<<rows, kCachedThreads, bytes, launch.stream>>>(args);
    } else {
      LossKernel<T, V, false><<<rows, kThreads, 0, launch.stream>>>(args);
    }
  });
  AddLosses<<<1, 1024, 0, launch.stream>>>(row_losses, static_cast<int>(logits.rows()),
                                           loss.As<float>());
}

void RunCrossEntropy(const OpCall& call, const Launch& launch) {
  CrossEntropyRows(call, launch, call.inputs[0], call.inputs[1], 0, call.outputs[0],
                   reinterpret_cast<float*>(WorkspaceOf(call)));
}

}  // namespace headroom::engine::cuda
