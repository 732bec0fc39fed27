// SPDX-License-Identifier: Apache-2.0
//
// One tile of attention scores: kQueryTile queries of a head against kKeyTile keys.
//
//            keys ──►                 forward keeps, per query, the largest score and the sum of
//   queries  ┌─────────┐              exponentials so far (Milakov and Gimelshein, arXiv
//   1805.02867;
//      │     │ scores  │              Dao et al., arXiv 2205.14135); backward recomputes the tile
//      ▼     └─────────┘              from the saved log-sum. No S x S buffer exists.
//
// Query i sees key j where j < the sequence's length and, if causal, j <= i + keys - queries.
#pragma once

#include <cstdint>

#include "engine/cpu/cpu_ops.h"
#include "engine/cpu/operands.h"

namespace headroom::engine::cpu {

inline constexpr int64_t kQueryTile = 64;
inline constexpr int64_t kKeyTile = 128;

// The operands both directions share, and the sizes that follow from them.
struct AttentionShape {
  AttentionShape(const OpCall& call, const TensorView& query, const TensorView& key_lengths,
                 const TensorView& alibi);

  int64_t batch, queries, keys;
  int64_t heads, kv_heads, head_dim;
  int64_t padded_dim;  // a multiple of 16; what lies beyond head_dim is 0
  bool causal;
  float scale;
  TensorView lengths;  // of the keys of each sequence; absent: all of them
  TensorView slopes;   // of ALiBi, by head
  DropoutMask mask;

  int64_t group() const { return heads / kv_heads; }
  int64_t query_tiles() const { return (queries + kQueryTile - 1) / kQueryTile; }
  int64_t key_tiles() const { return (keys + kKeyTile - 1) / kKeyTile; }
  // How many keys query i of sequence b sees.
  int64_t Visible(int64_t b, int64_t i) const;
};

// A tile's place.
struct TilePlace {
  int64_t b, head;
  int64_t query, rows;
  int64_t key, columns;
};

// Loads rows of one head, times `factor`, and zeroes the padding of each row.
void LoadHead(const TensorView& tensor, int64_t first_row, int64_t rows, int64_t head,
              const AttentionShape& shape, float factor, float* to);

// scores[rows, kKeyTile] = queries * keys + ALiBi; `keys_turned` is [padded_dim, kKeyTile].
void Scores(const AttentionShape& shape, const TilePlace& place, const float* queries,
            const float* keys_turned, float* scores);

// The dropout factors of one row of a tile.
void RowFactors(const AttentionShape& shape, const TilePlace& place, int64_t row, int64_t n,
                float* factors);

// A tile's keys that its query `row` sees.
int64_t VisibleColumns(const AttentionShape& shape, const TilePlace& place, int64_t row);

}  // namespace headroom::engine::cpu
