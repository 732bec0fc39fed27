// SPDX-License-Identifier: Apache-2.0
//
// What CUDA ops need beside their operands, as tensors of the plan: room for cuBLASLt and for the
// parts of sums that have a fixed order.
//
//   linear              cuBLASLt's workspace: sixteen times the product in float32, 32 MiB at most
//   norm_backward       column sums of 256 groups of rows
//   activation_backward column sums of 64 groups of rows, where it has a bias's gradient
//   embedding_backward  where the list of each id's rows ends
//   linear_loss         the workspace; logits in rows of a multiple of 64, for tensor cores
//   attention           some KiB of cuDNN's, or scores where products compute it (score_groups.h)
//   attention_backward  do . o of each query and head; gradients of the scores of as many sequences
//                       as 64 MiB hold, or as cuDNN is given at a time, or scores and gradients
//   cross_entropy       a float for each row; grad_norm and update some for their chunks
//
// Only the plan knows it: no header of CUDA is needed, nor a GPU.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "graph/graph.h"

namespace headroom::engine::cuda {

inline constexpr int64_t kGemmWorkspace = 32 << 20;
// Groups of rows whose sums are added in their order.
inline constexpr int64_t kSumParts = 64;
inline constexpr int64_t kNormParts = 256;
inline constexpr int64_t kScoreWorkspace = 64 << 20;
inline constexpr int64_t kCudnnWorkspace = 256 << 20;
// Queries and keys of a block of the tensor-core kernels of attention.
inline constexpr int64_t kAttentionTile = 64;

// Of the scores' gradients of one sequence: tiles of 16-bit values, one behind the other.
constexpr int64_t ScoreBytes(int64_t heads, int64_t queries, int64_t keys) {
  const int64_t rows = (queries + kAttentionTile - 1) / kAttentionTile * kAttentionTile;
  const int64_t columns = (keys + kAttentionTile - 1) / kAttentionTile * kAttentionTile;
  return 2 * heads * rows * columns;
}

// Of do . o of each query and head: what attention_backward has first.
constexpr int64_t DeltaBytes(int64_t lines) { return (4 * lines + 255) / 256 * 256; }

// How many sequences cuDNN's deterministic backward pass takes at a time: the most that divide the
// batch and have the gradients of their scores within kCudnnWorkspace; one at least.
int64_t CudnnSequences(int64_t batch, int64_t heads, int64_t queries, int64_t keys);

// Appends a kWorkspace tensor to the scratch of each op that needs one. To be called last, on a
// verified graph.
void AddWorkspaces(graph::Graph& graph);

}  // namespace headroom::engine::cuda
