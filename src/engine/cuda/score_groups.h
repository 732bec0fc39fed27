// SPDX-License-Identifier: Apache-2.0
//
// Attention by products of matrices (product_attention.cu) keeps scores in memory, those of a piece
// at a time: so few that they stay in the GPU's L2. A piece is some sequences with all heads; else
// some heads of one sequence; else some queries of one head of keys.
//
//   scores   [sequence][kv head][query head of it][query][row]   float32, twice in the backward
//   pass
//
// BERT-large, 4 x 512 in float32: 16 heads x 512 x 512 scores are 16 MiB, so that a piece is two
// sequences in the forward pass, and one in the backward pass.
//
// Only the plan and the launches know it: no header of CUDA is needed, nor a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "graph/op.h"

namespace headroom::engine::cuda {

enum class AttentionPass : uint8_t { kForward, kBackward };

// Of the scores of all matrices of a piece, where a piece of 64 queries is not more.
inline constexpr int64_t kScoresInCache = 32 << 20;

// What the plan knows of an attention.
struct AttentionSize {
  int64_t batch = 0;
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool causal = false;

  int64_t group() const { return heads / kv_heads; }
};
AttentionSize SizeOfAttention(const graph::OpAttributes& attributes);

struct ScorePiece {
  int64_t sequence = 0;
  int64_t sequences = 0;
  int64_t kv_head = 0;
  int64_t kv_heads = 0;
  int64_t query = 0;
  int64_t queries = 0;
  int64_t keys = 0;    // from the first on: what none of the queries sees is left out
  bool first = false;  // of the pieces of its keys, and so one that has all keys
  bool last = false;
};

// The largest piece, and the room in the workspace that it takes.
struct ScoreGroups {
  int64_t sequences = 0;
  int64_t kv_heads = 0;
  int64_t queries = 0;
  int64_t row = 0;           // floats from a query's scores to the next one's
  int64_t matrix_bytes = 0;  // of one matrix of scores
  int64_t matrices = 0;
  int64_t sum_bytes = 0;  // of the float32 sums of dk, and of dv; 0: they need none
  int64_t gemm_bytes = 0;

  int64_t bytes() const { return matrices * matrix_bytes + 2 * sum_bytes + gemm_bytes; }
};

// Nothing where heads are of odd sizes, or the products so small that starting them takes longer
// than the plain kernels do.
std::optional<ScoreGroups> GroupScores(const AttentionSize& size, DType dtype, AttentionPass pass);

// Each query of each head once. Pieces of the same keys follow each other.
std::vector<ScorePiece> PiecesOf(const AttentionSize& size, const ScoreGroups& groups);

// Whether the kernels of flash_attention.cu take it, given aligned operands.
bool TensorCoresTake(const graph::OpAttributes& attributes, DType dtype, bool alibi);

}  // namespace headroom::engine::cuda
