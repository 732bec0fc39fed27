// SPDX-License-Identifier: Apache-2.0
//
// The optimizer: two launches for all parameters. Their addresses stand in a table in device
// memory; a block takes one chunk of one parameter.
#include <type_traits>

#include "engine/cpu/block_quantiser.h"
#include "engine/cuda/device_types.cuh"
#include "engine/stochastic_rounding.h"

namespace headroom::engine::cuda {
namespace {

constexpr int kThreads = 256;

// What update.cc of the CPU works out before its loop.
struct Factors {
  float gradient_scale, l2, decay, beta1, beta2, step_size, inverse_correction, eps;
  float learning_rate, weight_decay, momentum;
  int skip;
  // Of an update that rounds stochastically, the first parameter's.
  StochasticRounding rounding;
  bool rounds;
};

// Weights [at, at + V) of a parameter. With V = 8 that is a group of its own.
template <int V, typename W>
__device__ void StoreWeights(const Factors& f, const TableChunk& chunk, W* weights, int64_t at,
                             const float (&values)[V]) {
  if constexpr (std::is_same_v<W, BFloat>) {
    if (f.rounds) {
      StochasticRounding rounding = f.rounding;
      rounding.stream += chunk.entry;
      const auto words = Philox(rounding.Counter(static_cast<uint64_t>(at) / 8), rounding.key);
      Packed<uint16_t, V> packed;
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const int element = V == 8 ? k : static_cast<int>(at % 8);
        const uint32_t word = words[element / 2];
        packed.values[k] =
            RoundStochastically(values[k], element % 2 == 0 ? word & 0xffffU : word >> 16);
      }
      *reinterpret_cast<Packed<uint16_t, V>*>(weights + at) = packed;
      return;
    }
  }
  Store<V>(weights + at, values);
}

template <typename T>
__device__ void SquaresOf(const T* gradient, int64_t n, double& sum, float& bad) {
  float part = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) {
    const float x = ToFloat(gradient[i]);
    if (isfinite(x)) {
      part += x * x;
    } else {
      bad += 1;
    }
  }
  sum += static_cast<double>(part);
}

__device__ void BlockTotal(double& sum, float& bad) {
  __shared__ double sums[32];
  __shared__ float bads[32];
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(0xffffffffU, sum, step);
    bad += __shfl_xor_sync(0xffffffffU, bad, step);
  }
  if (threadIdx.x % 32 == 0) {
    sums[threadIdx.x / 32] = sum;
    bads[threadIdx.x / 32] = bad;
  }
  __syncthreads();
  sum = 0;
  bad = 0;
  for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) {
    sum += sums[i];
    bad += bads[i];
  }
}

__global__ void __launch_bounds__(kThreads) SquaresKernel(OpTable table, float* parts) {
  const TableChunk chunk = table.chunks[blockIdx.x];
  const TableEntry& entry = table.entries[chunk.entry];
  double sum = 0;
  float bad = 0;
  if (entry.gradient_type == DType::kFloat32) {
    SquaresOf(reinterpret_cast<const float*>(entry.gradient) + chunk.start, chunk.count, sum, bad);
  } else if (entry.gradient_type == DType::kBFloat16) {
    SquaresOf(reinterpret_cast<const BFloat*>(entry.gradient) + chunk.start, chunk.count, sum, bad);
  } else {
    SquaresOf(reinterpret_cast<const Half*>(entry.gradient) + chunk.start, chunk.count, sum, bad);
  }
  BlockTotal(sum, bad);
  if (threadIdx.x != 0) return;
  parts[2 * blockIdx.x] = static_cast<float>(sum);
  parts[2 * blockIdx.x + 1] = bad;
}

__global__ void NormKernel(const float* parts, int64_t count, float* norm) {
  double sum = 0;
  float bad = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    sum += static_cast<double>(parts[2 * i]);
    bad += parts[2 * i + 1];
  }
  BlockTotal(sum, bad);
  if (threadIdx.x != 0) return;
  norm[0] = static_cast<float>(sum);
  norm[1] = bad;
}

// Whether the update is to change nothing. What halts one halts all behind it.
__device__ bool Skips(const StepScalars& step, const float* norm, const float* loss,
                      uint32_t* halted) {
  const bool overflow = norm[1] > 0;
  if (!step.halt) return overflow;
  if (overflow || !isfinite(*loss)) *halted = 1;
  return *halted != 0;
}

struct UpdateArgs {
  float weight_decay, momentum;
  bool decoupled, rounds;
  uint32_t stream;
  const float* norm;
  const float* loss;
  uint32_t* halted;
};

__global__ void FactorsKernel(const StepScalars* step, UpdateArgs args, Factors* out) {
  const auto steps = static_cast<double>(step->step - step->skipped);
  const double correction1 = 1 - pow(static_cast<double>(step->beta1), steps);
  const double correction2 = 1 - pow(static_cast<double>(step->beta2), steps);
  float scale = 1.0F / step->loss_scale;
  if (step->max_grad_norm > 0) {
    scale *= fminf(1.0F, step->max_grad_norm / (sqrtf(args.norm[0]) * scale + 1e-6F));
  }
  const float decay = args.weight_decay;
  *out = {.gradient_scale = scale,
          .l2 = args.decoupled ? 0.0F : decay,
          .decay = args.decoupled ? 1.0F - step->learning_rate * decay : 1.0F,
          .beta1 = step->beta1,
          .beta2 = step->beta2,
          .step_size = static_cast<float>(static_cast<double>(step->learning_rate) / correction1),
          .inverse_correction = static_cast<float>(1 / sqrt(correction2)),
          .eps = step->adam_eps,
          .learning_rate = step->learning_rate,
          .weight_decay = decay,
          .momentum = args.momentum,
          .skip = Skips(*step, args.norm, args.loss, args.halted) ? 1 : 0,
          .rounding = RoundingOf(*step, args.stream, 0),
          .rounds = args.rounds};
}

__device__ void AdamStep(const Factors& f, float gradient, float& weight, float& m, float& v) {
  gradient = gradient * f.gradient_scale + f.l2 * weight;
  weight *= f.decay;
  m = f.beta1 * m + (1.0F - f.beta1) * gradient;
  v = f.beta2 * v + (1.0F - f.beta2) * gradient * gradient;
  weight -= f.step_size * m / (sqrtf(v) * f.inverse_correction + f.eps);
}

// n elements of a parameter from `start` on, V at a time.
template <int V, typename Job>
__device__ void ForVectors(const TableChunk& chunk, const Job& job) {
  const int64_t whole = chunk.count / V * V;
  for (int64_t i = threadIdx.x * V; i < whole; i += kThreads * V) job(Width<V>{}, chunk.start + i);
  for (int64_t i = whole + threadIdx.x; i < chunk.count; i += kThreads) {
    job(Width<1>{}, chunk.start + i);
  }
}

template <typename G, typename W, typename C>
__device__ void Adam(const Factors& f, const TableEntry& entry, const TableChunk& chunk) {
  const auto* gradients = reinterpret_cast<const G*>(entry.gradient);
  auto* weights = reinterpret_cast<W*>(entry.weight);
  auto* ms = reinterpret_cast<float*>(entry.m);
  auto* vs = reinterpret_cast<float*>(entry.v);
  auto* copies = reinterpret_cast<C*>(entry.copy);
  ForVectors<8>(chunk, [&](auto width, int64_t i) {
    constexpr int V = decltype(width)::kValue;
    float g[V], w[V], m[V], v[V];
    Load<V>(gradients + i, g);
    Load<V>(weights + i, w);
    Load<V>(ms + i, m);
    Load<V>(vs + i, v);
#pragma unroll
    for (int k = 0; k < V; ++k) AdamStep(f, g[k], w[k], m[k], v[k]);
    Store<V>(ms + i, m);
    Store<V>(vs + i, v);
    StoreWeights<V>(f, chunk, weights, i, w);
    if (copies != nullptr) Store<V>(copies + i, w);
  });
}

template <typename G, typename W, typename C>
__device__ void Sgd(const Factors& f, const TableEntry& entry, const TableChunk& chunk) {
  const auto* gradients = reinterpret_cast<const G*>(entry.gradient);
  auto* weights = reinterpret_cast<W*>(entry.weight);
  auto* ms = reinterpret_cast<float*>(entry.m);
  auto* copies = reinterpret_cast<C*>(entry.copy);
  ForVectors<8>(chunk, [&](auto width, int64_t i) {
    constexpr int V = decltype(width)::kValue;
    float g[V], w[V], m[V];
    Load<V>(gradients + i, g);
    Load<V>(weights + i, w);
    if (ms != nullptr) Load<V>(ms + i, m);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      g[k] = g[k] * f.gradient_scale + f.weight_decay * w[k];
      if (ms != nullptr) g[k] = m[k] = m[k] * f.momentum + g[k];
      w[k] -= f.learning_rate * g[k];
    }
    if (ms != nullptr) Store<V>(ms + i, m);
    StoreWeights<V>(f, chunk, weights, i, w);
    if (copies != nullptr) Store<V>(copies + i, w);
  });
}

// The code whose value is nearest, the lower of two: the number of the 255 middles below x. Always
// eight steps without a branch, so that searches for several values run side by side.
__device__ int Nearest(const float* middles, float x) {
  int below = 0;
#pragma unroll
  for (int step = 128; step > 0; step /= 2) below += middles[below + step - 1] < x ? step : 0;
  return below;
}

__device__ uint8_t CodeOf(const float* map, const float* middles, float x, float inverse) {
  int code = x == x ? Nearest(middles, x * inverse) : 0;
  if (x != 0 && signbit(map[code]) != signbit(x)) code += x > 0 ? 1 : -1;
  return static_cast<uint8_t>(code);
}

// The bits that a block of 256 elements is rounded with, in their order: a lane makes eight.
__device__ void RandomBits(const Factors& f, const TableChunk& chunk, int64_t first, int lane,
                           uint16_t* bits) {
  StochasticRounding rounding = f.rounding;
  rounding.stream += chunk.entry;
  const auto words =
      Philox(rounding.Counter(static_cast<uint64_t>(first) / 8 + lane), rounding.key);
  __syncwarp();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    bits[8 * lane + 2 * k] = static_cast<uint16_t>(words[k]);
    bits[8 * lane + 2 * k + 1] = static_cast<uint16_t>(words[k] >> 16);
  }
  __syncwarp();
}

// A warp takes a block of 256 elements: 8 of a lane.
template <typename G, typename W, typename C>
__device__ void QuantisedAdam(Factors f, const TableEntry& entry, const TableChunk& chunk,
                              const float* maps) {
  __shared__ uint16_t random[kThreads / 32][kQuantisedBlock];
  uint16_t* bits = random[threadIdx.x / 32];
  const bool rounds = std::is_same_v<W, BFloat> && f.rounds;
  const float decay = f.decay;
  f.decay = 1;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t block = threadIdx.x / 32; block * kQuantisedBlock < chunk.count;
       block += kThreads / 32) {
    const int64_t first = chunk.start + block * kQuantisedBlock;
    const int64_t index = first / kQuantisedBlock;
    const int64_t end = chunk.start + chunk.count;
    float m[8] = {}, v[8] = {};
    float most_m = 0;
    float most_v = 0;
    if (rounds) RandomBits(f, chunk, first, lane, bits);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const int64_t i = first + 32 * k + lane;
      if (i >= end) continue;
      m[k] = maps[reinterpret_cast<uint8_t*>(entry.m)[i]] * entry.m_scales[index];
      v[k] = maps[512 + reinterpret_cast<uint8_t*>(entry.v)[i]] * entry.v_scales[index];
      float weight = ToFloat(reinterpret_cast<W*>(entry.weight)[i]);
      AdamStep(f, ToFloat(reinterpret_cast<const G*>(entry.gradient)[i]), weight, m[k], v[k]);
      weight *= decay;
      if (rounds) {
        reinterpret_cast<uint16_t*>(entry.weight)[i] =
            RoundStochastically(weight, bits[32 * k + lane]);
      } else {
        reinterpret_cast<W*>(entry.weight)[i] = FromFloat<W>(weight);
      }
      if (entry.copy != nullptr) reinterpret_cast<C*>(entry.copy)[i] = FromFloat<C>(weight);
      most_m = fmaxf(most_m, fabsf(m[k]));
      most_v = fmaxf(most_v, fabsf(v[k]));
    }
    most_m = WarpMax(most_m);
    most_v = WarpMax(most_v);
    const float inverse_m = most_m > 0 ? 1.0F / most_m : 0.0F;
    const float inverse_v = most_v > 0 ? 1.0F / most_v : 0.0F;
    __syncwarp();
    if (lane == 0) {
      entry.m_scales[index] = most_m;
      entry.v_scales[index] = most_v;
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const int64_t i = first + 32 * k + lane;
      if (i >= end) continue;
      reinterpret_cast<uint8_t*>(entry.m)[i] = CodeOf(maps, maps + 256, m[k], inverse_m);
      reinterpret_cast<uint8_t*>(entry.v)[i] = CodeOf(maps + 512, maps + 768, v[k], inverse_v);
    }
  }
}

// Searches for codes wait for shared memory: where weights have 16 bits, and states may have 8,
// more blocks hide that, and elsewhere more registers serve better.
template <typename G, typename W, typename C>
__global__ void __launch_bounds__(kThreads, sizeof(W) == 4 ? 3 : 4)
    UpdateKernel(OpTable table, const Factors* factors, const float* quantisers, bool sgd) {
  __shared__ float maps[1024];
  const Factors f = *factors;
  if (f.skip != 0) return;
  const TableChunk chunk = table.chunks[blockIdx.x];
  const TableEntry& entry = table.entries[chunk.entry];
  if (sgd) return Sgd<G, W, C>(f, entry, chunk);
  if (entry.state_type != DType::kUInt8) return Adam<G, W, C>(f, entry, chunk);
  for (int i = static_cast<int>(threadIdx.x); i < 1024; i += kThreads) maps[i] = quantisers[i];
  __syncthreads();
  QuantisedAdam<G, W, C>(f, entry, chunk, maps);
}

}  // namespace

void RunGradNorm(const OpCall& call, const Launch& launch) {
  auto* parts = reinterpret_cast<float*>(WorkspaceOf(call));
  const OpTable& table = launch.table;
  SquaresKernel<<<static_cast<unsigned>(table.chunk_count), kThreads, 0, launch.stream>>>(table,
                                                                                          parts);
  NormKernel<<<1, 1024, 0, launch.stream>>>(parts, table.chunk_count, call.outputs[0].As<float>());
}

void RunUpdate(const OpCall& call, const Launch& launch) {
  auto* factors = reinterpret_cast<Factors*>(WorkspaceOf(call));
  const graph::OpAttributes& attributes = call.attributes;
  const bool sgd = attributes.optimizer == graph::OptimizerKind::kSgd;
  const UpdateArgs args{.weight_decay = attributes.weight_decay,
                        .momentum = attributes.momentum,
                        .decoupled = attributes.optimizer == graph::OptimizerKind::kAdamW,
                        .rounds = attributes.stochastic_rounding,
                        .stream = attributes.stream,
                        .norm = call.inputs[0].As<const float>(),
                        .loss = launch.loss,
                        .halted = launch.halted};
  FactorsKernel<<<1, 1, 0, launch.stream>>>(launch.scalars, args, factors);
  const DType gradient = call.inputs[1].dtype;
  const DType weight = call.outputs[0].dtype;
  const DType copy = call.outputs[3] ? call.outputs[3].dtype : weight;
  const auto blocks = static_cast<unsigned>(launch.table.chunk_count);
  const auto run = [&](auto g, auto w, auto c) {
    using G = typename decltype(g)::Type;
    using W = typename decltype(w)::Type;
    using C = typename decltype(c)::Type;
    UpdateKernel<G, W, C>
        <<<blocks, kThreads, 0, launch.stream>>>(launch.table, factors, launch.quantiser_maps, sgd);
  };
  WithType(gradient, [&](auto g) {
    WithType(weight, [&](auto w) {
      if (copy == weight) return run(g, w, w);
      if (copy == DType::kBFloat16) return run(g, w, Tag<BFloat>{});
      run(g, w, Tag<Half>{});
    });
  });
}

}  // namespace headroom::engine::cuda
