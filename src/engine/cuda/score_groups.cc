// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/score_groups.h"

#include <algorithm>

namespace headroom::engine::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kQueryStep = 64;
// Of small outputs from long sums, which cuBLASLt cuts into parts.
constexpr int64_t kMostGemmBytes = 8 << 20;
// Multiply-adds of one product. The plain kernels do about 2e12 of them a second (BERT-large on an
// H200), and to start a product takes about 2 us where the device is not full.
constexpr int64_t kLeastProduct = 1 << 21;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }
// The size of parts of at most `most` that are as even as can be.
int64_t Even(int64_t total, int64_t most) { return CeilDiv(total, CeilDiv(total, most)); }

}  // namespace

AttentionSize SizeOfAttention(const graph::OpAttributes& attributes) {
  return {.batch = attributes.batch,
          .queries = attributes.sequence,
          .keys = attributes.key_sequence > 0 ? attributes.key_sequence : attributes.sequence,
          .heads = attributes.heads,
          .kv_heads = attributes.kv_heads > 0 ? attributes.kv_heads : attributes.heads,
          .head_dim = attributes.head_dim,
          .causal = attributes.causal};
}

std::optional<ScoreGroups> GroupScores(const AttentionSize& size, DType dtype, AttentionPass pass) {
  // Tensor cores want rows of whole 16 bytes.
  if (size.head_dim * ElementSize(dtype) % 16 != 0) return std::nullopt;
  ScoreGroups groups;
  groups.matrices = pass == AttentionPass::kForward ? 1 : 2;
  groups.row = RoundUp(size.keys, 8);
  const int64_t query = groups.matrices * kFloat * size.group() * groups.row;
  const int64_t fit = std::max<int64_t>(1, kScoresInCache / query);
  if (fit < size.queries) {
    groups.sequences = groups.kv_heads = 1;
    const int64_t most = std::max(kQueryStep, fit / kQueryStep * kQueryStep);
    groups.queries = std::min(size.queries, RoundUp(Even(size.queries, most), kQueryStep));
  } else {
    const int64_t heads = fit / size.queries;
    groups.queries = size.queries;
    groups.kv_heads = Even(size.kv_heads, std::min(heads, size.kv_heads));
    groups.sequences =
        heads < size.kv_heads ? 1 : Even(size.batch, std::min(heads / size.kv_heads, size.batch));
  }
  const int64_t together = std::max(groups.sequences, groups.kv_heads);
  if (together * groups.queries * size.keys * size.head_dim < kLeastProduct) return std::nullopt;
  const int64_t lines = groups.sequences * groups.kv_heads * size.group() * groups.queries;
  const int64_t key_rows = groups.sequences * groups.kv_heads * size.keys;
  groups.matrix_bytes = RoundUp(kFloat * lines * groups.row, 256);
  // Sums of several products, in 16 bits, would be rounded each time.
  const bool summed = size.group() > 1 || groups.queries < size.queries;
  if (pass == AttentionPass::kBackward && IsHalf(dtype) && summed) {
    groups.sum_bytes = RoundUp(kFloat * key_rows * size.head_dim, 256);
  }
  groups.gemm_bytes =
      std::min(kMostGemmBytes, (1 << 16) + 64 * std::max(lines, key_rows) * size.head_dim);
  return groups;
}

std::vector<ScorePiece> PiecesOf(const AttentionSize& size, const ScoreGroups& groups) {
  std::vector<ScorePiece> pieces;
  // The last queries come first: they see all keys that any of them sees.
  const int64_t query_steps = CeilDiv(size.queries, groups.queries);
  for (int64_t b = 0; b < size.batch; b += groups.sequences) {
    for (int64_t head = 0; head < size.kv_heads; head += groups.kv_heads) {
      for (int64_t step = query_steps - 1; step >= 0; --step) {
        const int64_t query = step * groups.queries;
        const int64_t end = std::min(size.queries, query + groups.queries);
        const int64_t seen = size.causal
                                 ? std::clamp<int64_t>(end + size.keys - size.queries, 1, size.keys)
                                 : size.keys;
        pieces.push_back({.sequence = b,
                          .sequences = std::min(groups.sequences, size.batch - b),
                          .kv_head = head,
                          .kv_heads = std::min(groups.kv_heads, size.kv_heads - head),
                          .query = query,
                          .queries = end - query,
                          .keys = seen,
                          .first = step == query_steps - 1,
                          .last = step == 0});
      }
    }
  }
  return pieces;
}

bool TensorCoresTake(const graph::OpAttributes& attributes, DType dtype, bool alibi) {
  if (!IsHalf(dtype) || (attributes.head_dim != 64 && attributes.head_dim != 128)) return false;
  if (alibi || attributes.accumulate) return false;
  return attributes.dropout == 0 || SizeOfAttention(attributes).keys % 4 == 0;
}

}  // namespace headroom::engine::cuda
