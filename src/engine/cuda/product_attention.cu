// SPDX-License-Identifier: Apache-2.0
//
// Attention by products of matrices, a piece of the scores at a time (score_groups.h):
//
//   forward    S = Q K^T   P = dropout(softmax(S))   O = P V
//   backward   S = Q K^T   dP = dO V^T   S -> P, dP -> dS   dV = P^T dO   dQ = dS K   dK = dS^T Q
//
// Scores are float32; what a second product reads has the type of the heads and lies where the
// scores were. The gradients of a group's queries are added one after the other.
#include "engine/cuda/attention.cuh"
#include "engine/cuda/gemm_library.h"
#include "engine/cuda/score_groups.h"
#include "engine/cuda/workspace.h"

namespace headroom::engine::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kStep = 4 * 32;  // scores that a warp reads at once

struct ScoreArgs {
  AttentionShape shape;
  int sequence, kv_head, kv_heads, query, queries;  // of the piece
  int columns;                                      // keys of the piece
  int lines;
  int64_t row;
  float* scores;
  float* gradients;
  const float* delta;
  float* lse;
};

// One query of one head: a warp's work.
struct ScoreLine {
  int head, query, visible;
  int64_t line;

  __device__ ScoreLine(const ScoreArgs& args, int index) {
    const AttentionShape& shape = args.shape;
    const int heads = args.kv_heads * shape.group();
    const int of_head = index / args.queries;
    const int b = args.sequence + of_head / heads;
    head = args.kv_head * shape.group() + of_head % heads;
    query = args.query + index % args.queries;
    visible = shape.Visible(b, query);
    line = shape.Line(b, head, query);
  }
};

// Four scores as they enter the exponential; REQUIRES: column < visible.
__device__ void LoadScores(const ScoreArgs& args, const ScoreLine& at, const float* from,
                           int column, float (&x)[4]) {
  Load<4>(from + column, x);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = x[i] * args.shape.scale + args.shape.Bias(at.head, at.query, column + i);
  }
}

__device__ void Factors(const ScoreArgs& args, const ScoreLine& at, const DropoutMask& mask,
                        int column, float (&factors)[4]) {
  const auto element = static_cast<uint64_t>(at.line * args.shape.keys + column);
  if (mask.threshold == 0) {
#pragma unroll
    for (float& factor : factors) factor = 1;
  } else if (element % 4 == 0) {
    DropFactors<4>(mask, element, factors);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) factors[i] = mask.Factor(element + static_cast<uint64_t>(i));
  }
}

// A step's narrower values lie over scores of this step, which all lanes have read by then, or of
// steps before.
template <typename T>
__global__ void __launch_bounds__(kThreads) SoftmaxKernel(ScoreArgs args) {
  const int index = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (index >= args.lines) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const ScoreLine at(args, index);
  float* from = args.scores + index * args.row;
  T* to = reinterpret_cast<T*>(from);
  const DropoutMask mask = args.shape.dropout.Mask();
  float max = -INFINITY;
  float sum = 0;
  for (int c = 4 * lane; c < at.visible; c += kStep) {
    float x[4];
    LoadScores(args, at, from, c, x);
    float most = max;
#pragma unroll
    for (int i = 0; i < 4; ++i) most = c + i < at.visible ? fmaxf(most, x[i]) : most;
    if (max != -INFINITY) sum *= expf(max - most);
    max = most;
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += c + i < at.visible ? expf(x[i] - max) : 0.0F;
  }
  const float row_max = WarpMax(max);
  sum = WarpSum(max == -INFINITY ? sum : sum * expf(max - row_max));
  const float inverse = sum == 0 ? 0.0F : 1.0F / sum;
  if (args.lse != nullptr && lane == 0) {
    args.lse[at.line] = sum == 0 ? -INFINITY : row_max + logf(sum);
  }
  for (int first = 0; first < args.columns; first += kStep) {
    const int c = first + 4 * lane;
    float p[4] = {};
    if (c < at.visible) {
      float x[4];
      float factors[4];
      LoadScores(args, at, from, c, x);
      Factors(args, at, mask, c, factors);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        p[i] = c + i < at.visible ? expf(x[i] - row_max) * inverse * factors[i] : 0.0F;
      }
    }
    __syncwarp();
    if (c < args.columns) Store<4>(to + c, p);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) ScoreGradientKernel(ScoreArgs args) {
  const int index = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (index >= args.lines) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const ScoreLine at(args, index);
  float* scores = args.scores + index * args.row;
  float* gradients = args.gradients + index * args.row;
  const DropoutMask mask = args.shape.dropout.Mask();
  const float lse = args.lse[at.line];
  const float delta = args.delta[at.line];
  for (int first = 0; first < args.columns; first += kStep) {
    const int c = first + 4 * lane;
    float dropped[4] = {};
    float ds[4] = {};
    if (c < at.visible) {
      float x[4];
      float dp[4];
      float factors[4];
      LoadScores(args, at, scores, c, x);
      Load<4>(gradients + c, dp);
      Factors(args, at, mask, c, factors);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (c + i >= at.visible) continue;
        const float p = expf(x[i] - lse);
        dropped[i] = p * factors[i];
        ds[i] = p * (dp[i] * factors[i] - delta) * args.shape.scale;
      }
    }
    __syncwarp();
    if (c < args.columns) {
      Store<4>(reinterpret_cast<T*>(scores) + c, dropped);
      Store<4>(reinterpret_cast<T*>(gradients) + c, ds);
    }
  }
}

// to (+)= float32 sums of [sequence][head][key][d].
template <typename T>
__global__ void SumsKernel(const float* sums, int64_t count, int sequence, int head, int heads,
                           int keys, int dim, Rows<T> to, bool add) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64_t line = i / dim;  // [sequence][head][key]
  const int64_t of_head = line / keys;
  const int64_t row = (sequence + of_head / heads) * keys + line % keys;
  float value[1] = {sums[i]};
  StoreOrAdd<1>(to.At(row, (head + of_head % heads) * dim + i % dim), value, add);
}

// Where the products of one launch begin, and how far apart they are.
struct Matrices {
  TensorView first;
  int64_t step = 0;
};

// The launches of one piece: a batch is over the heads of a sequence or over the sequences of a
// head, whichever needs fewer.
class Piece {
 public:
  Piece(const OpCall& call, const Launch& launch, const ScoreGroups& groups,
        const ScorePiece& piece, std::byte* room)
      : launch_(launch),
        groups_(groups),
        piece_(piece),
        size_(SizeOfAttention(call.attributes)),
        room_(room),
        over_sequences_(piece.sequences > piece.kv_heads) {}

  // function(g) for every launch, g the query head of a head of keys.
  template <typename Function>
  void ForEach(const Function& function) {
    const int64_t launches = over_sequences_ ? piece_.kv_heads : piece_.sequences;
    for (turn_ = 0; turn_ < launches; ++turn_) {
      for (int64_t g = 0; g < size_.group(); ++g) function(g);
    }
  }

  Matrices Queries(const TensorView& tensor, int64_t g) const {
    const int64_t head = (piece_.kv_head + LocalHead()) * size_.group() + g;
    return Heads(tensor, size_.queries, piece_.query, piece_.queries, head, size_.group());
  }
  Matrices Keys(const TensorView& tensor) const {
    return Heads(tensor, size_.keys, 0, piece_.keys, piece_.kv_head + LocalHead(), 1);
  }
  // Scores as they come out of a product, or what later lies there in another type.
  Matrices Scores(int64_t matrix, DType dtype, int64_t g) const {
    const int64_t size = piece_.queries * groups_.row;
    const int64_t index = LocalPair() * size_.group() + g;
    const int64_t narrower = ElementSize(DType::kFloat32) / ElementSize(dtype);
    const int64_t pairs = over_sequences_ ? piece_.kv_heads : 1;
    return {{room_ + matrix * groups_.matrix_bytes + ElementSize(DType::kFloat32) * index * size,
             dtype, Shape{piece_.queries, piece_.keys}, groups_.row * narrower},
            pairs * size_.group() * size * narrower};
  }
  // Float32 sums of dk (0) or dv (1).
  Matrices Sums(int64_t which) const {
    const int64_t size = size_.keys * size_.head_dim;
    const int64_t pairs = over_sequences_ ? piece_.kv_heads : 1;
    return {{SumRoom(which) + ElementSize(DType::kFloat32) * LocalPair() * size, DType::kFloat32,
             Shape{piece_.keys, size_.head_dim}, size_.head_dim},
            pairs * size};
  }

  void Multiply(const Matrices& left, bool left_turned, const Matrices& right, bool right_turned,
                const Matrices& out, bool add) const {
    launch_.gemm->Multiply({.left = {left.first, left_turned},
                            .right = {right.first, right_turned},
                            .out = out.first,
                            .batch = {.count = over_sequences_ ? piece_.sequences : piece_.kv_heads,
                                      .left = left.step,
                                      .right = right.step,
                                      .out = out.step},
                            .add = add,
                            .tf32 = launch_.tf32 && left.first.dtype == DType::kFloat32,
                            .workspace = SumRoom(2),
                            .workspace_bytes = groups_.gemm_bytes},
                           launch_.stream);
  }

  ScoreArgs Args(const AttentionShape& shape) const {
    return {.shape = shape,
            .sequence = static_cast<int>(piece_.sequence),
            .kv_head = static_cast<int>(piece_.kv_head),
            .kv_heads = static_cast<int>(piece_.kv_heads),
            .query = static_cast<int>(piece_.query),
            .queries = static_cast<int>(piece_.queries),
            .columns = static_cast<int>(piece_.keys),
            .lines = static_cast<int>(piece_.sequences * piece_.kv_heads * size_.group() *
                                      piece_.queries),
            .row = groups_.row,
            .scores = reinterpret_cast<float*>(room_),
            .gradients = reinterpret_cast<float*>(room_ + groups_.matrix_bytes),
            .delta = nullptr,
            .lse = nullptr};
  }

  // The sums, in the type of the gradient.
  template <typename T>
  void WriteSums(int64_t which, const TensorView& to, bool add) const {
    const int64_t count = piece_.sequences * piece_.kv_heads * size_.keys * size_.head_dim;
    SumsKernel<T><<<static_cast<unsigned>(CeilDiv(count, 256)), 256, 0, launch_.stream>>>(
        reinterpret_cast<const float*>(SumRoom(which)), count, static_cast<int>(piece_.sequence),
        static_cast<int>(piece_.kv_head), static_cast<int>(piece_.kv_heads),
        static_cast<int>(size_.keys), static_cast<int>(size_.head_dim), RowsOf<T>(to), add);
  }

 private:
  int64_t LocalSequence() const { return over_sequences_ ? 0 : turn_; }
  int64_t LocalHead() const { return over_sequences_ ? turn_ : 0; }
  // Of a sequence and a head of keys.
  int64_t LocalPair() const { return LocalSequence() * piece_.kv_heads + LocalHead(); }
  std::byte* SumRoom(int64_t which) const {
    return room_ + groups_.matrices * groups_.matrix_bytes + which * groups_.sum_bytes;
  }
  Matrices Heads(const TensorView& tensor, int64_t length, int64_t row, int64_t rows, int64_t head,
                 int64_t head_step) const {
    const int64_t at = ((piece_.sequence + LocalSequence()) * length + row) * tensor.stride() +
                       head * size_.head_dim;
    return {{tensor.data + at * ElementSize(tensor.dtype), tensor.dtype,
             Shape{rows, size_.head_dim}, tensor.stride()},
            over_sequences_ ? length * tensor.stride() : head_step * size_.head_dim};
  }

  const Launch& launch_;
  const ScoreGroups& groups_;
  const ScorePiece& piece_;
  AttentionSize size_;
  std::byte* room_;
  bool over_sequences_;
  int64_t turn_ = 0;
};

unsigned Blocks(const ScoreArgs& args) {
  return static_cast<unsigned>(CeilDiv(args.lines, kWarps));
}

// The groups of this attention, when its workspace has room for them behind `before` bytes.
std::optional<ScoreGroups> GroupsInRoom(const OpCall& call, DType dtype, AttentionPass pass,
                                        int64_t before) {
  if (call.scratch.empty()) return std::nullopt;
  auto groups = GroupScores(SizeOfAttention(call.attributes), dtype, pass);
  if (!groups || call.scratch.back().shape.NumElements() < before + groups->bytes()) {
    return std::nullopt;
  }
  return groups;
}

struct BackwardOperands {
  TensorView dout, q, k, v, lse, dq, dk, dv;
};

template <typename T>
void BackwardOfPiece(Piece& piece, const ScorePiece& place, const BackwardOperands& op,
                     const ScoreArgs& args, bool summed, bool add, cudaStream_t stream) {
  constexpr DType kScores = DType::kFloat32;
  const DType dtype = op.q.dtype;
  piece.ForEach([&](int64_t g) {
    piece.Multiply(piece.Queries(op.q, g), false, piece.Keys(op.k), true,
                   piece.Scores(0, kScores, g), false);
    piece.Multiply(piece.Queries(op.dout, g), false, piece.Keys(op.v), true,
                   piece.Scores(1, kScores, g), false);
  });
  ScoreGradientKernel<T><<<Blocks(args), kThreads, 0, stream>>>(args);
  piece.ForEach([&](int64_t g) {
    const bool adds = g > 0 || !place.first || (add && !summed);
    piece.Multiply(piece.Scores(0, dtype, g), true, piece.Queries(op.dout, g), false,
                   summed ? piece.Sums(1) : piece.Keys(op.dv), adds);
    piece.Multiply(piece.Scores(1, dtype, g), true, piece.Queries(op.q, g), false,
                   summed ? piece.Sums(0) : piece.Keys(op.dk), adds);
    piece.Multiply(piece.Scores(1, dtype, g), false, piece.Keys(op.k), false,
                   piece.Queries(op.dq, g), add);
  });
  if (!summed || !place.last) return;
  piece.WriteSums<T>(0, op.dk, add);
  piece.WriteSums<T>(1, op.dv, add);
}

}  // namespace

bool RunProductAttention(const OpCall& call, const Launch& launch) {
  const TensorView q = Operand(call.inputs, 0);
  const auto groups = GroupsInRoom(call, q.dtype, AttentionPass::kForward, 0);
  if (!groups) return false;
  const AttentionShape shape = ShapeOf(call, launch, 3);
  for (const ScorePiece& place : PiecesOf(SizeOfAttention(call.attributes), *groups)) {
    Piece piece(call, launch, *groups, place, WorkspaceOf(call));
    piece.ForEach([&](int64_t g) {
      piece.Multiply(piece.Queries(q, g), false, piece.Keys(call.inputs[1]), true,
                     piece.Scores(0, DType::kFloat32, g), false);
    });
    ScoreArgs args = piece.Args(shape);
    args.lse = Operand(call.outputs, 1).As<float>();
    WithType(q.dtype, [&](auto tag) {
      SoftmaxKernel<typename decltype(tag)::Type>
          <<<Blocks(args), kThreads, 0, launch.stream>>>(args);
    });
    piece.ForEach([&](int64_t g) {
      piece.Multiply(piece.Scores(0, q.dtype, g), false, piece.Keys(call.inputs[2]), false,
                     piece.Queries(call.outputs[0], g), call.attributes.accumulate);
    });
  }
  return true;
}

bool RunProductAttentionBackward(const OpCall& call, const Launch& launch, const float* delta) {
  const BackwardOperands op{call.inputs[0], call.inputs[1],  call.inputs[2],  call.inputs[3],
                            call.inputs[5], call.outputs[0], call.outputs[1], call.outputs[2]};
  const int64_t before = DeltaBytes(op.lse.shape.NumElements());
  const auto groups = GroupsInRoom(call, op.q.dtype, AttentionPass::kBackward, before);
  if (!groups) return false;
  const AttentionShape shape = ShapeOf(call, launch, 6);
  for (const ScorePiece& place : PiecesOf(SizeOfAttention(call.attributes), *groups)) {
    Piece piece(call, launch, *groups, place, WorkspaceOf(call) + before);
    ScoreArgs args = piece.Args(shape);
    args.delta = delta;
    args.lse = op.lse.As<float>();
    WithType(op.q.dtype, [&](auto tag) {
      BackwardOfPiece<typename decltype(tag)::Type>(piece, place, op, args, groups->sum_bytes > 0,
                                                    call.attributes.accumulate, launch.stream);
    });
  }
  return true;
}

}  // namespace headroom::engine::cuda
