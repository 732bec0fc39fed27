// SPDX-License-Identifier: Apache-2.0
//
// Attention on tensor cores (mma.sync, from sm_80 on) for 16-bit heads of 64 and 128, after Dao
// (arXiv 2307.08691): a warp takes 16 rows of scores, which stay in registers.
//
//   forward   rows are queries:  S = Q K^T      O += P V
//   keys      rows are keys:     S^T = K Q^T    dV += P^T dO    dK += dS^T Q
//   queries   rows are queries:  S = Q K^T      dQ += dS K
//
// No sum depends on the order of blocks: the gradients of the scores of some sequences go through
// the workspace, from the pass over keys to a product with the keys; where they do not fit, the
// pass over queries computes them again.
#include "engine/cuda/async_copy.cuh"
#include "engine/cuda/attention.cuh"
#include "engine/cuda/workspace.h"

namespace headroom::engine::cuda {
namespace {

constexpr int kTile = kAttentionTile;  // queries and keys of a block
constexpr int kThreads = 128;
constexpr float kLog2e = 1.4426950408889634F;

// A tile of [kTile, D] 16-bit elements. 16-byte pieces of a row are permuted, so that neither rows
// nor columns meet in a bank.
template <int D>
struct Tile {
  static constexpr int kBytes = kTile * D * 2;
  static constexpr int kPieces = D / 8;
  uint32_t base;  // in shared memory

  __device__ uint32_t At(int row, int piece) const {
    return base + static_cast<uint32_t>((row * kPieces + (piece ^ (row & 7))) * 16);
  }
};

// Starts loading rows of one head; what lies beyond `rows` becomes 0.
template <int D, typename T>
__device__ void LoadTile(const Rows<const T>& from, int64_t first, int rows, int column,
                         Tile<D> to) {
#pragma unroll
  for (int i = 0; i < kTile * Tile<D>::kPieces / kThreads; ++i) {
    const int index = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = index / Tile<D>::kPieces;
    const int piece = index % Tile<D>::kPieces;
    const bool valid = row < rows;
    CopyPiece(to.At(row, piece), from.At(first + (valid ? row : 0), column + piece * 8), valid);
  }
}

__device__ void Ldmatrix(uint32_t (&r)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}
__device__ void LdmatrixTurned(uint32_t (&r)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}

template <typename T>
__device__ void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ void Mma<BFloat>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ void Mma<Half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <typename T>
__device__ uint32_t Pair(float low, float high) {
  Packed<T, 2> pair{{FromFloat<T>(low), FromFloat<T>(high)}};
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }
__device__ int Warp() { return static_cast<int>(threadIdx.x) / 32; }

// The 16 rows of this warp, columns 16 * step to 16 * step + 15.
template <int D>
__device__ void LoadRows(uint32_t (&a)[4], Tile<D> tile, int step) {
  const int lane = Lane();
  Ldmatrix(a, tile.At(16 * Warp() + lane % 16, 2 * step + lane / 16));
}

// scores[16, kTile] = rows of `left` times `right` transposed.
template <typename T, int D>
__device__ void Scores(float (&scores)[kTile / 8][4], Tile<D> left, Tile<D> right) {
  const int lane = Lane();
#pragma unroll
  for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[n][i] = 0;
  }
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    uint32_t a[4];
    LoadRows(a, left, step);
#pragma unroll
    for (int n = 0; n < kTile / 16; ++n) {
      uint32_t b[4];
      Ldmatrix(b, right.At(16 * n + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
      Mma<T>(scores[2 * n], a, b[0], b[1]);
      Mma<T>(scores[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// out[16, D] += scores[16, kTile] times `right`.
template <typename T, int D>
__device__ void AddProduct(float (&out)[D / 8][4], const float (&scores)[kTile / 8][4],
                           Tile<D> right) {
  const int lane = Lane();
#pragma unroll
  for (int step = 0; step < kTile / 16; ++step) {
    const float(&low)[4] = scores[2 * step];
    const float(&high)[4] = scores[2 * step + 1];
    const uint32_t a[4] = {Pair<T>(low[0], low[1]), Pair<T>(low[2], low[3]),
                           Pair<T>(high[0], high[1]), Pair<T>(high[2], high[3])};
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      uint32_t b[4];
      LdmatrixTurned(b, right.At(16 * step + lane % 16, 2 * n + lane / 16));
      Mma<T>(out[2 * n], a, b[0], b[1]);
      Mma<T>(out[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// Writes 16 rows of a warp, times two factors of its rows, through its part of a tile.
template <typename T, int D>
__device__ void StoreRows(const float (&out)[D / 8][4], float low, float high, Tile<D> tile,
                          const Rows<T>& to, int64_t first, int rows, int column) {
  const int lane = Lane();
  const int row = 16 * Warp() + lane / 4;
  __syncwarp();  // other lanes may have read the tile
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
    const uint32_t offset = static_cast<uint32_t>(lane % 4 * 4);
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(tile.At(row, n) + offset),
                 "r"(Pair<T>(out[n][0] * low, out[n][1] * low)));
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(tile.At(row + 8, n) + offset),
                 "r"(Pair<T>(out[n][2] * high, out[n][3] * high)));
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16 * Tile<D>::kPieces / 32; ++i) {
    const int index = i * 32 + lane;
    const int at = 16 * Warp() + index / Tile<D>::kPieces;
    const int piece = index % Tile<D>::kPieces;
    uint4 value;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(tile.At(at, piece)));
    if (at < rows) *reinterpret_cast<uint4*>(to.At(first + at, column + piece * 8)) = value;
  }
}

// Which of four neighbouring elements are kept, as bits.
__device__ uint32_t KeptBits(const DropoutMask& mask, uint64_t element) {
  const auto words = Philox(mask.Counter(element / 8), mask.key);
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    bits |= DropoutMask::Half(words[i], element) >= mask.threshold ? 1U << i : 0U;
  }
  return bits;
}

// Bit i says whether element i of four scores of this thread is kept. Rows are queries: lines are
// those of rows lane / 4 and lane / 4 + 8, `key` the first key of the eight. Two threads share a
// counter; REQUIRES: keys % 4 == 0.
__device__ uint32_t KeptOfQueries(const DropoutMask& mask, int64_t line, int keys, int key) {
  const int lane = Lane();
  const bool odd = lane % 2 != 0;
  const int64_t at = (line + (odd ? 8 : 0)) * keys + key + lane % 4 / 2 * 4;
  const uint32_t mine = KeptBits(mask, static_cast<uint64_t>(at));
  const uint32_t other = __shfl_xor_sync(0xffffffffU, mine, 1);
  const int shift = odd ? 2 : 0;
  const uint32_t low = (odd ? other : mine) >> shift;
  const uint32_t high = (odd ? mine : other) >> shift;
  return (low & 3U) | (high & 3U) << 2;
}

// The same where rows are keys, of which the warp's first is `key`, and columns are queries, the
// first of the eight having `line`. Four threads share their counters.
__device__ uint32_t KeptOfKeys(const DropoutMask& mask, int64_t line, int keys, int key) {
  const int lane = Lane();
  const int row = lane / 4;
  const int job = row % 4;
  const int64_t at = (line + lane % 4 * 2 + job % 2) * keys + key + job / 2 * 8 + row / 4 * 4;
  const uint32_t mine = KeptBits(mask, static_cast<uint64_t>(at));
  uint32_t kept = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t bits = __shfl_sync(0xffffffffU, mine, (row / 4 * 4 + i) * 4 + lane % 4);
    kept |= (bits >> job & 1U) << i;
  }
  return kept;
}

template <typename T>
struct FlashArgs {
  AttentionShape shape;
  Rows<const T> q, k, v;
  Rows<T> o;
  float* lse;
  Rows<const T> dout;
  const float* delta;
  Rows<T> dq, dk, dv;
  // Gradients of scores: [sequence, head, tile of keys, tile of queries], a tile being [keys,
  // queries]; null where they are computed again.
  T* scores;
  int first_sequence;  // of those this launch is for

  __device__ T* ScoreTile(int head, int key_tile, int query_tile) const {
    const int64_t key_tiles = (shape.keys + kTile - 1) / kTile;
    const int64_t query_tiles = (shape.queries + kTile - 1) / kTile;
    const int64_t line = static_cast<int64_t>(blockIdx.z) * shape.heads + head;
    return scores + ((line * key_tiles + key_tile) * query_tiles + query_tile) * kTile * kTile;
  }
};

template <typename T, int D, bool kDrop>
__global__ void __launch_bounds__(kThreads) ForwardKernel(FlashArgs<T> args) {
  extern __shared__ __align__(128) uint8_t room[];
  const AttentionShape& shape = args.shape;
  const uint32_t base = SharedAddress(room);
  const Tile<D> queries{base};
  const auto keys = [&](int turn) { return Tile<D>{base + (1 + turn) * Tile<D>::kBytes}; };
  const auto values = [&](int turn) { return Tile<D>{base + (3 + turn) * Tile<D>::kBytes}; };
  const int b = static_cast<int>(blockIdx.z);
  const int head = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTile;
  const int rows = min(kTile, shape.queries - first);
  const int kv_column = head / shape.group() * D;
  const int64_t query_row = static_cast<int64_t>(b) * shape.queries + first;
  const int64_t key_row = static_cast<int64_t>(b) * shape.keys;
  const int end = shape.Visible(b, first + rows - 1);
  const int lane = Lane();
  const int row = first + 16 * Warp() + lane / 4;  // and row + 8
  const int visible[2] = {shape.Visible(b, row), shape.Visible(b, row + 8)};
  const int all_visible = shape.Visible(b, first);
  const int64_t line = shape.Line(b, head, row);
  const DropoutMask mask = shape.dropout.Mask();
  const float factor = shape.scale * kLog2e;
  LoadTile<D>(args.q, query_row, rows, head * D, queries);
  LoadTile<D>(args.k, key_row, min(kTile, end), kv_column, keys(0));
  LoadTile<D>(args.v, key_row, min(kTile, end), kv_column, values(0));
  Commit();
  float out[D / 8][4] = {};
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};
  int turn = 0;
  for (int key = 0; key < end; key += kTile, turn ^= 1) {
    WaitFor<0>();
    __syncthreads();
    if (key + kTile < end) {
      const int next = key + kTile;
      LoadTile<D>(args.k, key_row + next, min(kTile, end - next), kv_column, keys(turn ^ 1));
      LoadTile<D>(args.v, key_row + next, min(kTile, end - next), kv_column, values(turn ^ 1));
      Commit();
    }
    float scores[kTile / 8][4];
    Scores<T, D>(scores, queries, keys(turn));
    if (key + kTile > all_visible) {
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = key + 8 * n + lane % 4 * 2 + i % 2;
          if (at >= visible[i / 2]) scores[n][i] = -INFINITY;
        }
      }
    }
    float shift[2];
    float rescale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = max[half];
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
        most = fmaxf(most, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      }
      most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 2));
      shift[half] = most == -INFINITY ? 0.0F : most * factor;
      rescale[half] = most == -INFINITY ? 1.0F : exp2f((max[half] - most) * factor);
      max[half] = most;
      sum[half] *= rescale[half];
    }
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] = exp2f(scores[n][i] * factor - shift[i / 2]);
        sum[i / 2] += scores[n][i];
      }
      if constexpr (kDrop) {
        const uint32_t kept = KeptOfQueries(mask, line, shape.keys, key + 8 * n);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if ((kept >> i & 1U) == 0) scores[n][i] = 0;
        }
      }
    }
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n][i] *= rescale[i / 2];
    }
    AddProduct<T, D>(out, scores, values(turn));
  }
  WaitFor<0>();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += __shfl_xor_sync(0xffffffffU, sum[half], 1);
    sum[half] += __shfl_xor_sync(0xffffffffU, sum[half], 2);
  }
  const float scale = kDrop ? mask.scale : 1.0F;
  const float inverse[2] = {sum[0] == 0 ? 0.0F : scale / sum[0],
                            sum[1] == 0 ? 0.0F : scale / sum[1]};
  if (args.lse != nullptr && lane % 4 == 0) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row + 8 * half >= shape.queries) continue;
      args.lse[line + 8 * half] =
          sum[half] == 0 ? -INFINITY : max[half] * shape.scale + logf(sum[half]);
    }
  }
  // A warp writes over the queries that it alone has read.
  StoreRows<T, D>(out, inverse[0], inverse[1], queries, args.o, query_row, rows, head * D);
}

// p, and its gradient in place of what do . v is. Bits of `kept` tell what dropout keeps.
template <bool kDrop>
__device__ void ScoreGradient(float& p, float& dp, float exponent, bool visible, float delta,
                              bool kept, float scale) {
  const float probability = visible ? exp2f(exponent) : 0.0F;
  if constexpr (kDrop) {
    p = kept ? probability * scale : 0.0F;
    dp = probability * ((kept ? dp * scale : 0.0F) - delta);
  } else {
    p = probability;
    dp = probability * (dp - delta);
  }
}

template <typename T, int D, bool kDrop>
__global__ void __launch_bounds__(kThreads) KeysKernel(FlashArgs<T> args) {
  extern __shared__ __align__(128) uint8_t room[];
  __shared__ float lses[2][kTile];
  __shared__ float deltas[2][kTile];
  const AttentionShape& shape = args.shape;
  const uint32_t base = SharedAddress(room);
  const Tile<D> keys{base};
  const Tile<D> values{base + Tile<D>::kBytes};
  const auto queries = [&](int turn) { return Tile<D>{base + (2 + turn) * Tile<D>::kBytes}; };
  const auto douts = [&](int turn) { return Tile<D>{base + (4 + turn) * Tile<D>::kBytes}; };
  const int b = args.first_sequence + static_cast<int>(blockIdx.z);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.x) * kTile;
  const int rows = min(kTile, shape.keys - first);
  const int64_t key_row = static_cast<int64_t>(b) * shape.keys + first;
  const int64_t query_row = static_cast<int64_t>(b) * shape.queries;
  const int tiles = (shape.queries + kTile - 1) / kTile;
  const int lane = Lane();
  const int key = first + 16 * Warp();  // the warp's first
  const DropoutMask mask = shape.dropout.Mask();
  const float factor = shape.scale * kLog2e;
  // The first tile of queries that sees a key of this block.
  int begin = 0;
  while (begin < tiles &&
         shape.Visible(b, min(begin * kTile + kTile, shape.queries) - 1) <= first) {
    ++begin;
  }
  const int each = tiles - begin;
  const int jobs = each * shape.group();
  const auto load = [&](int job, int turn) {
    const int head = kv_head * shape.group() + job / each;
    const int query = (begin + job % each) * kTile;
    const int count = min(kTile, shape.queries - query);
    LoadTile<D>(args.q, query_row + query, count, head * D, queries(turn));
    LoadTile<D>(args.dout, query_row + query, count, head * D, douts(turn));
    Commit();
    const int i = static_cast<int>(threadIdx.x);
    if (i < kTile) {
      const int64_t line = shape.Line(b, head, query + i);
      lses[turn][i] = i < count ? args.lse[line] * kLog2e : 0.0F;
      deltas[turn][i] = i < count ? args.delta[line] : 0.0F;
    }
  };
  LoadTile<D>(args.k, key_row, rows, kv_head * D, keys);
  LoadTile<D>(args.v, key_row, rows, kv_head * D, values);
  Commit();
  if (jobs > 0) load(0, 0);
  float dk[D / 8][4] = {};
  float dv[D / 8][4] = {};
  int turn = 0;
  for (int job = 0; job < jobs; ++job, turn ^= 1) {
    WaitFor<0>();
    __syncthreads();
    if (job + 1 < jobs) load(job + 1, turn ^ 1);
    const int head = kv_head * shape.group() + job / each;
    const int query = (begin + job % each) * kTile;
    float p[kTile / 8][4];
    float ds[kTile / 8][4];
    Scores<T, D>(p, keys, queries(turn));
    Scores<T, D>(ds, values, douts(turn));
    const bool whole = query + kTile <= shape.queries && first + kTile <= shape.Visible(b, query);
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
      uint32_t kept = 0xf;
      if constexpr (kDrop) {
        kept = KeptOfKeys(mask, shape.Line(b, head, query + 8 * n), shape.keys, key);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = 8 * n + lane % 4 * 2 + i % 2;
        const bool visible =
            whole || (query + column < shape.queries &&
                      key + lane / 4 + i / 2 * 8 < shape.Visible(b, query + column));
        ScoreGradient<kDrop>(p[n][i], ds[n][i], p[n][i] * factor - lses[turn][column], visible,
                             deltas[turn][column], (kept >> i & 1U) != 0, mask.scale);
      }
    }
    AddProduct<T, D>(dv, p, douts(turn));
    AddProduct<T, D>(dk, ds, queries(turn));
    if (args.scores != nullptr) {
      const Tile<kTile> room_of_scores{base + 6 * Tile<D>::kBytes};
      const Rows<T> to{args.ScoreTile(head, first / kTile, query / kTile), kTile};
      StoreRows<T, kTile>(ds, 1.0F, 1.0F, room_of_scores, to, 0, kTile, 0);
    }
  }
  WaitFor<0>();
  __syncthreads();
  StoreRows<T, D>(dk, shape.scale, shape.scale, keys, args.dk, key_row, rows, kv_head * D);
  StoreRows<T, D>(dv, 1.0F, 1.0F, values, args.dv, key_row, rows, kv_head * D);
}

template <typename T, int D, bool kDrop>
__global__ void __launch_bounds__(kThreads) QueriesKernel(FlashArgs<T> args) {
  extern __shared__ __align__(128) uint8_t room[];
  const AttentionShape& shape = args.shape;
  const uint32_t base = SharedAddress(room);
  const Tile<D> queries{base};
  const Tile<D> douts{base + Tile<D>::kBytes};
  const auto keys = [&](int turn) { return Tile<D>{base + (2 + turn) * Tile<D>::kBytes}; };
  const auto values = [&](int turn) { return Tile<D>{base + (4 + turn) * Tile<D>::kBytes}; };
  const int b = args.first_sequence + static_cast<int>(blockIdx.z);
  const int head = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTile;
  const int rows = min(kTile, shape.queries - first);
  const int kv_column = head / shape.group() * D;
  const int64_t query_row = static_cast<int64_t>(b) * shape.queries + first;
  const int64_t key_row = static_cast<int64_t>(b) * shape.keys;
  const int end = shape.Visible(b, first + rows - 1);
  const int lane = Lane();
  const int row = first + 16 * Warp() + lane / 4;
  const int visible[2] = {row < shape.queries ? shape.Visible(b, row) : 0,
                          row + 8 < shape.queries ? shape.Visible(b, row + 8) : 0};
  const int all_visible = rows == kTile ? shape.Visible(b, first) : 0;
  const int64_t line = shape.Line(b, head, row);
  const DropoutMask mask = shape.dropout.Mask();
  const float factor = shape.scale * kLog2e;
  float lse[2] = {};
  float delta[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= shape.queries) continue;
    lse[half] = args.lse[line + 8 * half] * kLog2e;
    delta[half] = args.delta[line + 8 * half];
  }
  LoadTile<D>(args.q, query_row, rows, head * D, queries);
  LoadTile<D>(args.dout, query_row, rows, head * D, douts);
  LoadTile<D>(args.k, key_row, min(kTile, end), kv_column, keys(0));
  LoadTile<D>(args.v, key_row, min(kTile, end), kv_column, values(0));
  Commit();
  float dq[D / 8][4] = {};
  int turn = 0;
  for (int key = 0; key < end; key += kTile, turn ^= 1) {
    WaitFor<0>();
    __syncthreads();
    if (key + kTile < end) {
      const int next = key + kTile;
      LoadTile<D>(args.k, key_row + next, min(kTile, end - next), kv_column, keys(turn ^ 1));
      LoadTile<D>(args.v, key_row + next, min(kTile, end - next), kv_column, values(turn ^ 1));
      Commit();
    }
    float p[kTile / 8][4];
    float ds[kTile / 8][4];
    Scores<T, D>(p, queries, keys(turn));
    Scores<T, D>(ds, douts, values(turn));
    const bool whole = key + kTile <= all_visible;
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
      uint32_t kept = 0xf;
      if constexpr (kDrop) kept = KeptOfQueries(mask, line, shape.keys, key + 8 * n);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = key + 8 * n + lane % 4 * 2 + i % 2;
        ScoreGradient<kDrop>(p[n][i], ds[n][i], p[n][i] * factor - lse[i / 2],
                             whole || at < visible[i / 2], delta[i / 2], (kept >> i & 1U) != 0,
                             mask.scale);
      }
    }
    AddProduct<T, D>(dq, ds, keys(turn));
  }
  WaitFor<0>();
  __syncthreads();
  StoreRows<T, D>(dq, shape.scale, shape.scale, queries, args.dq, query_row, rows, head * D);
}

// dQ = dS K, from the gradients of scores that the pass over keys left.
template <typename T, int D>
__global__ void __launch_bounds__(kThreads) ScoresKernel(FlashArgs<T> args) {
  extern __shared__ __align__(128) uint8_t room[];
  const AttentionShape& shape = args.shape;
  const uint32_t base = SharedAddress(room);
  const auto keys = [&](int turn) { return Tile<D>{base + turn * Tile<D>::kBytes}; };
  const auto scores = [&](int turn) {
    return Tile<kTile>{base + 2 * Tile<D>::kBytes + turn * Tile<kTile>::kBytes};
  };
  const int b = args.first_sequence + static_cast<int>(blockIdx.z);
  const int head = static_cast<int>(blockIdx.y);
  const int query_tile = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int first = query_tile * kTile;
  const int rows = min(kTile, shape.queries - first);
  const int64_t query_row = static_cast<int64_t>(b) * shape.queries + first;
  const int64_t key_row = static_cast<int64_t>(b) * shape.keys;
  const int end = shape.Visible(b, first + rows - 1);
  const int lane = Lane();
  const auto load = [&](int key, int turn) {
    LoadTile<D>(args.k, key_row + key, min(kTile, shape.keys - key), head / shape.group() * D,
                keys(turn));
    const Rows<const T> from{args.ScoreTile(head, key / kTile, query_tile), kTile};
    LoadTile<kTile>(from, 0, kTile, 0, scores(turn));
    Commit();
  };
  if (end > 0) load(0, 0);
  float dq[D / 8][4] = {};
  int turn = 0;
  for (int key = 0; key < end; key += kTile, turn ^= 1) {
    WaitFor<0>();
    __syncthreads();
    if (key + kTile < end) load(key + kTile, turn ^ 1);
#pragma unroll
    for (int step = 0; step < kTile / 16; ++step) {
      uint32_t a[4];
      LdmatrixTurned(
          a, scores(turn).At(16 * step + lane % 8 + lane / 16 * 8, 2 * Warp() + lane / 8 % 2));
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        uint32_t b[4];
        LdmatrixTurned(b, keys(turn).At(16 * step + lane % 16, 2 * n + lane / 16));
        Mma<T>(dq[2 * n], a, b[0], b[1]);
        Mma<T>(dq[2 * n + 1], a, b[2], b[3]);
      }
    }
  }
  __syncthreads();
  StoreRows<T, D>(dq, shape.scale, shape.scale, keys(0), args.dq, query_row, rows, head * D);
}

template <typename T>
void LaunchTiles(void (*kernel)(FlashArgs<T>), const FlashArgs<T>& args, int length, int heads,
                 int sequences, int bytes, cudaStream_t stream) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  const dim3 grid(static_cast<unsigned>(CeilDiv(length, kTile)), static_cast<unsigned>(heads),
                  static_cast<unsigned>(sequences));
  kernel<<<grid, kThreads, static_cast<size_t>(bytes), stream>>>(args);
}

// Whether 16-byte pieces of heads can be loaded.
bool Aligned(std::span<const TensorView> tensors) {
  for (const TensorView& tensor : tensors) {
    if (!tensor) continue;
    if (tensor.stride() % 8 != 0 || reinterpret_cast<uintptr_t>(tensor.data) % 16 != 0) {
      return false;
    }
  }
  return true;
}

bool Serves(const OpCall& call, const AttentionShape& shape, DType dtype) {
  if (!IsHalf(dtype) || (shape.head_dim != 64 && shape.head_dim != 128)) return false;
  if (shape.slopes != nullptr || call.attributes.accumulate) return false;
  return shape.dropout.threshold == 0 || shape.keys % 4 == 0;
}

// As many sequences at a time as have room for the gradients of their scores.
template <typename T, int D, bool kDrop>
void LaunchBackward(const OpCall& call, FlashArgs<T> args, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  const int64_t each = ScoreBytes(shape.heads, shape.queries, shape.keys);
  const int64_t delta =
      (4 * static_cast<int64_t>(shape.batch) * shape.heads * shape.queries + 255) / 256 * 256;
  const int64_t fit = (call.scratch.back().shape.NumElements() - delta) / each;
  const int keys_bytes = 6 * Tile<D>::kBytes;
  if (fit <= 0) {
    LaunchTiles<T>(KeysKernel<T, D, kDrop>, args, shape.keys, shape.kv_heads, shape.batch,
                   keys_bytes, stream);
    LaunchTiles<T>(QueriesKernel<T, D, kDrop>, args, shape.queries, shape.heads, shape.batch,
                   6 * Tile<D>::kBytes, stream);
    return;
  }
  args.scores = reinterpret_cast<T*>(WorkspaceOf(call) + delta);
  while (args.first_sequence < shape.batch) {
    const int count = static_cast<int>(std::min<int64_t>(fit, shape.batch - args.first_sequence));
    LaunchTiles<T>(KeysKernel<T, D, kDrop>, args, shape.keys, shape.kv_heads, count,
                   keys_bytes + Tile<kTile>::kBytes, stream);
    LaunchTiles<T>(ScoresKernel<T, D>, args, shape.queries, shape.heads, count,
                   2 * Tile<D>::kBytes + 2 * Tile<kTile>::kBytes, stream);
    args.first_sequence += count;
  }
}

template <typename Function>
void WithKernel(DType dtype, int head_dim, bool drops, const Function& function) {
  const auto with_type = [&](auto tag) {
    const auto with_dim = [&](auto dim) {
      if (drops) {
        function(tag, dim, std::true_type{});
      } else {
        function(tag, dim, std::false_type{});
      }
    };
    if (head_dim == 64) return with_dim(Width<64>{});
    with_dim(Width<128>{});
  };
  if (dtype == DType::kBFloat16) return with_type(Tag<BFloat>{});
  with_type(Tag<Half>{});
}

}  // namespace

bool RunFlashAttention(const OpCall& call, const Launch& launch) {
  const TensorView q = Operand(call.inputs, 0);
  const AttentionShape shape = ShapeOf(call, launch, 3);
  if (!Serves(call, shape, q.dtype)) return false;
  if (!Aligned(call.inputs.first(3)) || !Aligned(call.outputs.first(1))) return false;
  WithKernel(q.dtype, shape.head_dim, shape.dropout.threshold != 0,
             [&](auto tag, auto dim, auto drops) {
               using T = typename decltype(tag)::Type;
               constexpr int D = decltype(dim)::kValue;
               FlashArgs<T> args{};
               args.shape = shape;
               args.q = RowsOf<const T>(q);
               args.k = RowsOf<const T>(call.inputs[1]);
               args.v = RowsOf<const T>(call.inputs[2]);
               args.o = RowsOf<T>(call.outputs[0]);
               args.lse = Operand(call.outputs, 1).As<float>();
               LaunchTiles<T>(ForwardKernel<T, D, decltype(drops)::value>, args, shape.queries,
                              shape.heads, shape.batch, 5 * Tile<D>::kBytes, launch.stream);
             });
  return true;
}

bool RunFlashAttentionBackward(const OpCall& call, const Launch& launch, const float* delta) {
  const TensorView q = Operand(call.inputs, 1);
  const AttentionShape shape = ShapeOf(call, launch, 6);
  if (!Serves(call, shape, q.dtype)) return false;
  if (!Aligned(call.inputs.first(4)) || !Aligned(call.outputs)) return false;
  WithKernel(q.dtype, shape.head_dim, shape.dropout.threshold != 0,
             [&](auto tag, auto dim, auto drops) {
               using T = typename decltype(tag)::Type;
               constexpr int D = decltype(dim)::kValue;
               constexpr bool kDrop = decltype(drops)::value;
               FlashArgs<T> args{};
               args.shape = shape;
               args.dout = RowsOf<const T>(call.inputs[0]);
               args.q = RowsOf<const T>(q);
               args.k = RowsOf<const T>(call.inputs[2]);
               args.v = RowsOf<const T>(call.inputs[3]);
               args.lse = call.inputs[5].As<float>();
               args.delta = delta;
               args.dq = RowsOf<T>(call.outputs[0]);
               args.dk = RowsOf<T>(call.outputs[1]);
               args.dv = RowsOf<T>(call.outputs[2]);
               LaunchBackward<T, D, kDrop>(call, args, launch.stream);
             });
  return true;
}

}  // namespace headroom::engine::cuda
