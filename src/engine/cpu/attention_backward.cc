// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "engine/cpu/attention_tile.h"
#include "engine/cpu/parallel.h"

namespace headroom::engine::cpu {
namespace {

struct alignas(64) Buffers {
  float queries[kQueryTile * kMaxHeadDim];  // times the scale
  float doutput[kQueryTile * kMaxHeadDim];
  float keys[kKeyTile * kMaxHeadDim];
  float keys_turned[kMaxHeadDim * kKeyTile];
  float values[kKeyTile * kMaxHeadDim];
  float values_turned[kMaxHeadDim * kKeyTile];
  float probabilities[kQueryTile * kKeyTile];
  float dropped[kQueryTile * kKeyTile];  // probabilities after dropout
  float dscores[kQueryTile * kKeyTile];
  float factors[kKeyTile];
  float dqueries[kQueryTile * kMaxHeadDim];
  float dkeys[kKeyTile * kMaxHeadDim];
  float dvalues[kKeyTile * kMaxHeadDim];
  float delta[kQueryTile];  // do . o, by query
};

struct Backward {
  TensorView dout, q, k, v, o, lse;
  TensorView dq, dk, dv;
  bool add = false;
};

void LoadQueries(const AttentionShape& shape, const Backward& op, const TilePlace& place,
                 Buffers& tile) {
  const int64_t first = place.b * shape.queries + place.query;
  LoadHead(op.q, first, place.rows, place.head, shape, shape.scale, tile.queries);
  LoadHead(op.dout, first, place.rows, place.head, shape, 1.0F, tile.doutput);
  for (int64_t r = 0; r < place.rows; ++r) {
    Chunk buffer;
    const float* o = Read(op.o, first + r, place.head * shape.head_dim, shape.head_dim, buffer);
    tile.delta[r] = Kernels().dot(tile.doutput + r * shape.padded_dim, o, shape.head_dim);
  }
}

void LoadKeys(const AttentionShape& shape, const Backward& op, const TilePlace& place,
              Buffers& tile) {
  const int64_t first = place.b * shape.keys + place.key;
  const int64_t kv_head = place.head / shape.group();
  LoadHead(op.k, first, place.columns, kv_head, shape, 1.0F, tile.keys);
  LoadHead(op.v, first, place.columns, kv_head, shape, 1.0F, tile.values);
  Kernels().transpose(tile.keys, shape.padded_dim, place.columns, shape.head_dim, tile.keys_turned,
                      kKeyTile);
  Kernels().transpose(tile.values, shape.padded_dim, place.columns, shape.head_dim,
                      tile.values_turned, kKeyTile);
}

// Probabilities, before and after dropout, and the gradient of the scores.
void ScoreGradients(const AttentionShape& shape, const Backward& op, const TilePlace& place,
                    Buffers& tile) {
  Scores(shape, place, tile.queries, tile.keys_turned, tile.probabilities);
  Kernels().multiply(place.rows, (place.columns + 15) / 16 * 16, shape.head_dim, tile.doutput,
                     shape.padded_dim, 1, tile.values_turned, kKeyTile, tile.dscores, kKeyTile,
                     false);
  const int64_t line = (place.b * shape.heads + place.head) * shape.queries + place.query;
  for (int64_t r = 0; r < place.rows; ++r) {
    float* p = tile.probabilities + r * kKeyTile;
    float* dropped = tile.dropped + r * kKeyTile;
    float* ds = tile.dscores + r * kKeyTile;
    const int64_t n = VisibleColumns(shape, place, r);
    for (float* row : {p, dropped, ds}) std::fill(row + n, row + place.columns, 0.0F);
    if (n == 0) continue;
    Kernels().exp_sum(p, op.lse.As<float>()[line + r], n, p);
    if (shape.mask.empty()) {
      std::copy_n(p, n, dropped);
    } else {
      RowFactors(shape, place, r, n, tile.factors);
      Kernels().multiply_rows(p, tile.factors, n, dropped);
      Kernels().multiply_rows(ds, tile.factors, n, ds);
    }
    Kernels().score_gradient(p, ds, tile.delta[r], n, ds);
  }
}

// dq += ds * k
void AddToQueries(const AttentionShape& shape, const TilePlace& place, Buffers& tile) {
  Kernels().multiply(place.rows, shape.padded_dim, place.columns, tile.dscores, kKeyTile, 1,
                     tile.keys, shape.padded_dim, tile.dqueries, shape.padded_dim, true);
}

void WriteQueries(const AttentionShape& shape, const Backward& op, const TilePlace& place,
                  Buffers& tile, bool add) {
  for (int64_t r = 0; r < place.rows; ++r) {
    float* row = tile.dqueries + r * shape.padded_dim;
    Kernels().scale(row, shape.scale, shape.head_dim, row);
    WriteOrAdd(op.dq, place.b * shape.queries + place.query + r, place.head * shape.head_dim,
               shape.head_dim, row, add);
  }
}

// The gradient of one tile of queries, over all keys they see.
void QueryTile(const AttentionShape& shape, const Backward& op, TilePlace place) {
  auto& tile = ThreadBuffers<Buffers>();
  LoadQueries(shape, op, place, tile);
  std::fill_n(tile.dqueries, kQueryTile * shape.padded_dim, 0.0F);
  const int64_t end = shape.Visible(place.b, place.query + place.rows - 1);
  for (place.key = 0; place.key < end; place.key += kKeyTile) {
    place.columns = std::min(kKeyTile, end - place.key);
    LoadKeys(shape, op, place, tile);
    ScoreGradients(shape, op, place, tile);
    AddToQueries(shape, place, tile);
  }
  WriteQueries(shape, op, place, tile, op.add);
}

// The gradients of one tile of keys and values, over all queries of their group of heads. With
// `queries_too` their share of the queries' gradient is written, or added to that of the keys
// before.
void KeyTile(const AttentionShape& shape, const Backward& op, TilePlace place, int64_t kv_head,
             bool queries_too) {
  auto& tile = ThreadBuffers<Buffers>();
  place.head = kv_head * shape.group();
  LoadKeys(shape, op, place, tile);
  std::fill_n(tile.dkeys, kKeyTile * shape.padded_dim, 0.0F);
  std::fill_n(tile.dvalues, kKeyTile * shape.padded_dim, 0.0F);
  for (int64_t job = 0; job < shape.group() * shape.query_tiles(); ++job) {
    place.head = kv_head * shape.group() + job / shape.query_tiles();
    place.query = job % shape.query_tiles() * kQueryTile;
    place.rows = std::min(kQueryTile, shape.queries - place.query);
    const bool seen = shape.Visible(place.b, place.query + place.rows - 1) > place.key;
    if (!seen && !(queries_too && place.key == 0)) continue;
    LoadQueries(shape, op, place, tile);
    ScoreGradients(shape, op, place, tile);
    Kernels().multiply(place.columns, shape.padded_dim, place.rows, tile.dropped, 1, kKeyTile,
                       tile.doutput, shape.padded_dim, tile.dvalues, shape.padded_dim, true);
    Kernels().multiply(place.columns, shape.padded_dim, place.rows, tile.dscores, 1, kKeyTile,
                       tile.queries, shape.padded_dim, tile.dkeys, shape.padded_dim, true);
    if (!queries_too) continue;
    std::fill_n(tile.dqueries, kQueryTile * shape.padded_dim, 0.0F);
    AddToQueries(shape, place, tile);
    WriteQueries(shape, op, place, tile, op.add || place.key > 0);
  }
  for (int64_t r = 0; r < place.columns; ++r) {
    const int64_t row = place.b * shape.keys + place.key + r;
    WriteOrAdd(op.dk, row, kv_head * shape.head_dim, shape.head_dim,
               tile.dkeys + r * shape.padded_dim, op.add);
    WriteOrAdd(op.dv, row, kv_head * shape.head_dim, shape.head_dim,
               tile.dvalues + r * shape.padded_dim, op.add);
  }
}

// With so many heads there are jobs enough when each takes all tiles of its keys.
constexpr int64_t kManyHeads = 32;

// Whether the queries' gradient can be summed where it is written, tile of keys after tile. What
// decides is the op, not the threads, as the sums differ in their last bits.
bool InOnePass(const AttentionShape& shape, const Backward& op) {
  if (shape.key_tiles() == 1) return true;
  return op.dq.dtype == DType::kFloat32 && shape.batch * shape.kv_heads >= kManyHeads;
}

TilePlace KeysAt(const AttentionShape& shape, int64_t b, int64_t key) {
  return {.b = b,
          .head = 0,
          .query = 0,
          .rows = 0,
          .key = key,
          .columns = std::min(kKeyTile, shape.keys - key)};
}

void HeadsInTurn(const AttentionShape& shape, const Backward& op) {
  ParallelForUneven(shape.batch * shape.kv_heads,
                    shape.queries * shape.group() * shape.keys * shape.head_dim, [&](int64_t job) {
                      for (int64_t key = 0; key < shape.keys; key += kKeyTile) {
                        KeyTile(shape, op, KeysAt(shape, job / shape.kv_heads, key),
                                job % shape.kv_heads, true);
                      }
                    });
}

// Every tile is computed twice: a sum over tiles of keys in any other way would need a float32
// buffer as large as the queries, or an order of the threads.
void TilesApart(const AttentionShape& shape, const Backward& op) {
  const int64_t key_tiles = shape.key_tiles();
  const int64_t query_tiles = shape.query_tiles();
  ParallelForUneven(shape.batch * shape.kv_heads * key_tiles,
                    shape.queries * shape.group() * kKeyTile * shape.head_dim, [&](int64_t job) {
                      const int64_t head = job / key_tiles;
                      KeyTile(shape, op,
                              KeysAt(shape, head / shape.kv_heads, job % key_tiles * kKeyTile),
                              head % shape.kv_heads, false);
                    });
  ParallelForUneven(shape.batch * shape.heads * query_tiles,
                    shape.keys * kQueryTile * shape.head_dim, [&](int64_t job) {
                      const int64_t query = job % query_tiles * kQueryTile;
                      QueryTile(shape, op,
                                {.b = job / query_tiles / shape.heads,
                                 .head = job / query_tiles % shape.heads,
                                 .query = query,
                                 .rows = std::min(kQueryTile, shape.queries - query),
                                 .key = 0,
                                 .columns = 0});
                    });
}

}  // namespace

void RunAttentionBackward(const OpCall& call) {
  const Backward op{Operand(call.inputs, 0),   Operand(call.inputs, 1),  Operand(call.inputs, 2),
                    Operand(call.inputs, 3),   Operand(call.inputs, 4),  Operand(call.inputs, 5),
                    Operand(call.outputs, 0),  Operand(call.outputs, 1), Operand(call.outputs, 2),
                    call.attributes.accumulate};
  const AttentionShape shape(call, op.q, Operand(call.inputs, 6), Operand(call.inputs, 7));
  if (InOnePass(shape, op)) {
    HeadsInTurn(shape, op);
  } else {
    TilesApart(shape, op);
  }
}

}  // namespace headroom::engine::cpu
