// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/column_sums.cuh"

namespace headroom::engine::cuda {
namespace {

using graph::ActivationKind;
using graph::OpKind;

constexpr int kThreads = 256;

// The normal distribution's function and its density.
struct Normal {
  float below;
  float density;
};

// In 16 bits Abramowitz and Stegun's 7.1.26 (error of erf at most 1.5e-7), which needs the
// density's exponential alone. Tails come as products, so that they keep their digits.
template <typename T>
__device__ Normal NormalAt(float x) {
  if constexpr (sizeof(T) == 4) {
    return {0.5F * (1.0F + erff(x * 0.70710678118654752F)),
            0.39894228040143268F * expf(-0.5F * x * x)};
  } else {
    const float bell = Exp<T>(-0.5F * x * x);
    const float t = __fdividef(1.0F, 1.0F + 0.3275911F * 0.70710678118654752F * fabsf(x));
    float tail = 1.061405429F;
    tail = tail * t - 1.453152027F;
    tail = tail * t + 1.421413741F;
    tail = tail * t - 0.284496736F;
    tail = tail * t + 0.254829592F;
    tail *= 0.5F * t * bell;
    return {x < 0 ? tail : 1.0F - tail, 0.39894228040143268F * bell};
  }
}

// 1 / (1 + exp(-x)), and 1 minus that.
struct Logistic {
  float value;
  float rest;
};
template <typename T>
__device__ Logistic LogisticAt(float x) {
  constexpr float kMost = 80;  // its exponential is still a float32
  const float e = Exp<T>(fminf(-x, kMost));
  const float value = sizeof(T) == 4 ? 1.0F / (1.0F + e) : __fdividef(1.0F, 1.0F + e);
  return {-x > kMost ? 0.0F : value, e * value};
}

// 0.5 (1 + tanh(u)) = logistic(2 u); here 2 u and its slope.
__device__ float GeluTanhArgument(float x) {
  return 1.59576912160573072F * (x + 0.044715F * x * x * x);
}
__device__ float GeluTanhSlope(float x) {
  return 1.59576912160573072F * (1.0F + 3.0F * 0.044715F * x * x);
}

template <typename T>
__device__ float Activation(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::kGelu:
      return x * NormalAt<T>(x).below;
    case ActivationKind::kGeluTanh:
      return x * LogisticAt<T>(GeluTanhArgument(x)).value;
    case ActivationKind::kRelu:
      return x > 0 ? x : (x == x ? 0.0F : x);
    case ActivationKind::kSilu:
      return x * LogisticAt<T>(x).value;
    case ActivationKind::kTanh:
      return tanhf(x);
  }
  return 0;
}

template <typename T>
__device__ float Slope(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::kGelu: {
      const Normal normal = NormalAt<T>(x);
      return normal.below + x * normal.density;
    }
    case ActivationKind::kGeluTanh: {
      const Logistic s = LogisticAt<T>(GeluTanhArgument(x));
      return s.value * (1.0F + x * s.rest * GeluTanhSlope(x));
    }
    case ActivationKind::kRelu:
      return x > 0 ? 1.0F : 0.0F;
    case ActivationKind::kSilu: {
      const Logistic s = LogisticAt<T>(x);
      return s.value * (1.0F + x * s.rest);
    }
    case ActivationKind::kTanh: {
      const float t = tanhf(x);
      return 1.0F - t * t;
    }
  }
  return 0;
}

template <typename T, int V>
struct ActivationOp {
  Rows<const T> x;
  ActivationKind kind;
  __device__ void operator()(int64_t row, int64_t column, float (&out)[V]) const {
    Load<V>(x.At(row, column), out);
#pragma unroll
    for (int i = 0; i < V; ++i) out[i] = Activation<T>(kind, out[i]);
  }
};

template <typename T, int V>
struct ActivationBackwardOp {
  struct Piece {
    Packed<T, V> dy, x;
  };

  Rows<const T> dy, x;
  ActivationKind kind;

  __device__ Piece Read(int64_t row, int64_t column) const {
    return {ReadPacked<V>(dy.At(row, column)), ReadPacked<V>(x.At(row, column))};
  }
  __device__ void Compute(const Piece& piece, float (&out)[V]) const {
    float values[V];
    Unpack(piece.x, values);
    Unpack(piece.dy, out);
#pragma unroll
    for (int i = 0; i < V; ++i) out[i] *= Slope<T>(kind, values[i]);
  }
  __device__ void operator()(int64_t row, int64_t column, float (&out)[V]) const {
    Compute(Read(row, column), out);
  }
};

// For column_sums.cuh, which sums what this writes: the gradient of a bias.
template <typename T, int V>
struct ActivationBackwardSource {
  static constexpr int kWidth = V;
  static constexpr int kRowsAtOnce = 2;
  using Piece = typename ActivationBackwardOp<T, V>::Piece;

  ActivationBackwardOp<T, V> op;
  Rows<T> dx;

  __device__ Piece Read(int64_t row, int64_t column) const { return op.Read(row, column); }
  __device__ void Yield(const Piece& piece, int64_t row, int64_t column, float (&out)[V]) const {
    op.Compute(piece, out);
    Store<V>(dx.At(row, column), out);
  }
};

template <typename T, int V>
struct GluOp {
  Rows<const T> x;
  int64_t half;
  ActivationKind kind;
  __device__ void operator()(int64_t row, int64_t column, float (&out)[V]) const {
    float up[V];
    Load<V>(x.At(row, column), out);
    Load<V>(x.At(row, half + column), up);
#pragma unroll
    for (int i = 0; i < V; ++i) out[i] = Activation<T>(kind, out[i]) * up[i];
  }
};

// Columns below `half` belong to the gate.
template <typename T, int V>
struct GluBackwardOp {
  Rows<const T> dy, x;
  int64_t half;
  ActivationKind kind;
  __device__ void operator()(int64_t row, int64_t column, float (&out)[V]) const {
    const bool gate = column < half;
    const int64_t at = gate ? column : column - half;
    float g[V];
    Load<V>(dy.At(row, at), out);
    Load<V>(x.At(row, at), g);
    if (gate) {
      float up[V];
      Load<V>(x.At(row, half + at), up);
#pragma unroll
      for (int i = 0; i < V; ++i) out[i] *= up[i] * Slope<T>(kind, g[i]);
    } else {
#pragma unroll
      for (int i = 0; i < V; ++i) out[i] *= Activation<T>(kind, g[i]);
    }
  }
};

template <typename T, int V>
struct AddOp {
  Rows<const T> a, b;
  __device__ void operator()(int64_t row, int64_t column, float (&out)[V]) const {
    float other[V];
    Load<V>(a.At(row, column), out);
    Load<V>(b.At(row, column), other);
#pragma unroll
    for (int i = 0; i < V; ++i) out[i] += other[i];
  }
};

template <typename T, int V>
struct DropOp {
  Rows<const T> x;
  int64_t columns;
  DropoutArgs dropout;
  __device__ void operator()(int64_t row, int64_t column, float (&out)[V]) const {
    Load<V>(x.At(row, column), out);
    if (dropout.threshold == 0) return;
    float factors[V];
    DropFactors<V>(dropout.Mask(), static_cast<uint64_t>(row * columns + column), factors);
#pragma unroll
    for (int i = 0; i < V; ++i) out[i] *= factors[i];
  }
};

template <typename T, int V, typename Job>
__global__ void Map(Rows<T> to, int64_t rows, uint32_t vectors, bool add, Job job) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = i / vectors;
  if (row >= rows) return;
  const int64_t column = (i - row * vectors) * V;
  float out[V];
  job(row, column, out);
  StoreOrAdd<V>(to.At(row, column), out, add);
}

template <typename T, int V, typename Job>
void RunMap(const OpCall& call, const Launch& launch, const Job& job) {
  const TensorView& to = call.outputs[0];
  const int64_t vectors = to.cols() / V;
  const int64_t count = to.rows() * vectors;
  if (count == 0) return;
  Map<T, V><<<static_cast<unsigned>(CeilDiv(count, kThreads)), kThreads, 0, launch.stream>>>(
      RowsOf<T>(to), to.rows(), static_cast<uint32_t>(vectors), call.attributes.accumulate, job);
}

template <typename T, int V>
void RunActivationBackward(const OpCall& call, const Launch& launch) {
  const TensorView dx = Operand(call.outputs, 0);
  const TensorView dbias = Operand(call.outputs, 1);
  const ActivationBackwardOp<T, V> op{RowsOf<const T>(call.inputs[0]),
                                      RowsOf<const T>(call.inputs[1]), call.attributes.activation};
  if (!dbias) return RunMap<T, V>(call, launch, op);
  LaunchColumnSums(ActivationBackwardSource<T, V>{op, RowsOf<T>(dx)}, dx.rows(), dx.cols(),
                   {.out = dbias.data,
                    .dtype = dbias.dtype,
                    .add = call.step.micro_step > 0,
                    .parts = reinterpret_cast<float*>(WorkspaceOf(call)),
                    .counters = launch.counters},
                   launch.stream);
}

// One block for each row of the output.
template <typename T, int V>
__global__ void SelectKernel(Rows<const T> x, Rows<T> y, Indices lengths, bool has_lengths,
                             int sequence, int wanted, int64_t columns, bool backward, bool add) {
  const int64_t row = blockIdx.x;
  const int64_t b = backward ? row / sequence : row;
  const int64_t length = has_lengths ? lengths[b] : sequence;
  int64_t selected = wanted;
  if (wanted < 0) selected = length + wanted > 0 ? length + wanted : 0;
  const bool zero = backward && row % sequence != selected;
  if (zero && add) return;
  const int64_t from = backward ? b : b * sequence + selected;
  for (int64_t column = threadIdx.x * V; column < columns; column += blockDim.x * V) {
    float values[V] = {};
    if (!zero) Load<V>(x.At(from, column), values);
    StoreOrAdd<V>(y.At(row, column), values, add);
  }
}

template <typename T>
__global__ void RopeKernel(Rows<T> x, Rows<const float> cosine, Rows<const float> sine,
                           int64_t rows, int heads, int head_dim, int pairs, int sequence,
                           float direction) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = i / (heads * pairs);
  if (row >= rows) return;
  const int head = static_cast<int>(i / pairs % heads);
  const int pair = static_cast<int>(i % pairs);
  const int64_t position = row % sequence;
  T* left = x.At(row, head * head_dim + pair);
  T* right = left + pairs;
  const float c = *cosine.At(position, pair);
  const float s = direction * *sine.At(position, pair);
  const float a = ToFloat(*left);
  const float b = ToFloat(*right);
  *left = FromFloat<T>(a * c - b * s);
  *right = FromFloat<T>(b * c + a * s);
}

__global__ void SetScalarsKernel(StepScalars scalars, StepScalars* to) { *to = scalars; }

}  // namespace

void RunElementwise(const OpCall& call, const Launch& launch) {
  const TensorView x = Operand(call.inputs, 0);
  const TensorView other = Operand(call.inputs, 1);
  const TensorView y = Operand(call.outputs, 0);
  const bool glu = call.kind == OpKind::kGlu || call.kind == OpKind::kGluBackward;
  const int64_t half = (call.kind == OpKind::kGlu ? x.cols() : y.cols()) / 2;
  const bool wide = IsWide(x) && IsWide(other) && IsWide(y) && (!glu || half % 8 == 0);
  WithTypeAndWidth(y.dtype, wide, [&](auto tag, auto width) {
    using T = typename decltype(tag)::Type;
    constexpr int V = decltype(width)::kValue;
    const auto a = RowsOf<const T>(x);
    const auto b = RowsOf<const T>(other);
    const ActivationKind kind = call.attributes.activation;
    switch (call.kind) {
      case OpKind::kActivation:
        return RunMap<T, V>(call, launch, ActivationOp<T, V>{a, kind});
      case OpKind::kActivationBackward:
        return RunActivationBackward<T, V>(call, launch);
      case OpKind::kGlu:
        return RunMap<T, V>(call, launch, GluOp<T, V>{a, half, kind});
      case OpKind::kGluBackward:
        return RunMap<T, V>(call, launch, GluBackwardOp<T, V>{a, b, half, kind});
      case OpKind::kAdd:
        return RunMap<T, V>(call, launch, AddOp<T, V>{a, b});
      default:
        return RunMap<T, V>(call, launch, DropOp<T, V>{a, y.cols(), DropoutOf(call, launch)});
    }
  });
}

void RunSelectRows(const OpCall& call, const Launch& launch) {
  const TensorView x = Operand(call.inputs, 0);
  const TensorView lengths = Operand(call.inputs, 1);
  const TensorView y = Operand(call.outputs, 0);
  const bool backward = call.kind == OpKind::kSelectRowsBackward;
  WithTypeAndWidth(y.dtype, IsWide(x) && IsWide(y), [&](auto tag, auto width) {
    using T = typename decltype(tag)::Type;
    constexpr int V = decltype(width)::kValue;
    SelectKernel<T, V><<<static_cast<unsigned>(y.rows()), 128, 0, launch.stream>>>(
        RowsOf<const T>(x), RowsOf<T>(y), IndicesOf(lengths), static_cast<bool>(lengths),
        static_cast<int>(call.attributes.sequence), call.attributes.row, y.cols(), backward,
        backward && call.attributes.accumulate);
  });
}

// Pairs are (i, i + R / 2) of each head, as in cpu/rope.cc.
void RunRope(const OpCall& call, const Launch& launch) {
  const TensorView x = Operand(call.outputs, 0);
  const TensorView cosine = Operand(call.inputs, 1);
  const int head_dim = call.attributes.head_dim;
  const int heads = static_cast<int>(x.cols() / head_dim);
  const int pairs = static_cast<int>(cosine.cols());
  const float direction = call.kind == OpKind::kRope ? 1.0F : -1.0F;
  WithType(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const int64_t count = x.rows() * heads * pairs;
    RopeKernel<T><<<static_cast<unsigned>(CeilDiv(count, kThreads)), kThreads, 0, launch.stream>>>(
        RowsOf<T>(x), RowsOf<const float>(cosine), RowsOf<const float>(call.inputs[2]), x.rows(),
        heads, head_dim, pairs, static_cast<int>(call.attributes.sequence), direction);
  });
}

void SetScalars(const StepScalars& scalars, StepScalars* device, cudaStream_t stream) {
  SetScalarsKernel<<<1, 1, 0, stream>>>(scalars, device);
}

}  // namespace headroom::engine::cuda
