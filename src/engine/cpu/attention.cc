// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "base/check.h"
#include "engine/cpu/attention_tile.h"
#include "engine/cpu/parallel.h"

namespace headroom::engine::cpu {

AttentionShape::AttentionShape(const OpCall& call, const TensorView& query,
                               const TensorView& key_lengths, const TensorView& alibi)
    : batch(call.attributes.batch),
      queries(call.attributes.sequence),
      keys(call.attributes.key_sequence > 0 ? call.attributes.key_sequence
                                            : call.attributes.sequence),
      heads(call.attributes.heads),
      kv_heads(call.attributes.kv_heads > 0 ? call.attributes.kv_heads : call.attributes.heads),
      head_dim(call.attributes.head_dim),
      padded_dim((head_dim + 15) / 16 * 16),
      causal(call.attributes.causal),
      scale(call.attributes.scale),
      lengths(key_lengths),
      slopes(alibi),
      mask(MaskOf(call)) {
  HEADROOM_CHECK(head_dim > 0 && head_dim <= kMaxHeadDim, "attention heads wider than 256");
  HEADROOM_CHECK(heads % kv_heads == 0, "query heads that do not divide into groups");
  HEADROOM_CHECK(query.cols() == heads * head_dim && query.rows() == batch * queries,
                 "queries of another shape than the attention");
}

int64_t AttentionShape::Visible(int64_t b, int64_t i) const {
  const int64_t length = lengths ? std::min(IndexAt(lengths, b), keys) : keys;
  return causal ? std::min(length, std::max<int64_t>(i + 1 + keys - queries, 0)) : length;
}

void LoadHead(const TensorView& tensor, int64_t first_row, int64_t rows, int64_t head,
              const AttentionShape& shape, float factor, float* to) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = to + r * shape.padded_dim;
    Kernels().load(Address(tensor, first_row + r, head * shape.head_dim), tensor.dtype,
                   shape.head_dim, row);
    if (factor != 1.0F) Kernels().scale(row, factor, shape.head_dim, row);
    std::fill(row + shape.head_dim, row + shape.padded_dim, 0.0F);
  }
}

void Scores(const AttentionShape& shape, const TilePlace& place, const float* queries,
            const float* keys_turned, float* scores) {
  Kernels().multiply(place.rows, (place.columns + 15) / 16 * 16, shape.head_dim, queries,
                     shape.padded_dim, 1, keys_turned, kKeyTile, scores, kKeyTile, false);
  if (!shape.slopes) return;
  const float slope = shape.slopes.As<float>()[place.head];
  for (int64_t r = 0; r < place.rows; ++r) {
    const int64_t diagonal = place.query + r + shape.keys - shape.queries;
    Kernels().add_ramp(slope * static_cast<float>(place.key - diagonal), slope, place.columns,
                       scores + r * kKeyTile);
  }
}

void RowFactors(const AttentionShape& shape, const TilePlace& place, int64_t row, int64_t n,
                float* factors) {
  const int64_t line = (place.b * shape.heads + place.head) * shape.queries + place.query + row;
  Kernels().dropout(shape.mask, static_cast<uint64_t>(line * shape.keys + place.key), n, factors);
}

int64_t VisibleColumns(const AttentionShape& shape, const TilePlace& place, int64_t row) {
  const int64_t visible = shape.Visible(place.b, place.query + row) - place.key;
  return std::clamp<int64_t>(visible, 0, place.columns);
}

namespace {

struct alignas(64) Buffers {
  float queries[kQueryTile * kMaxHeadDim];
  float keys[kKeyTile * kMaxHeadDim];
  float keys_turned[kMaxHeadDim * kKeyTile];
  float values[kKeyTile * kMaxHeadDim];
  float scores[kQueryTile * kKeyTile];
  float factors[kKeyTile];
  float output[kQueryTile * kMaxHeadDim];
  float max[kQueryTile];
  float sum[kQueryTile];
};

// Scores become probabilities up to the row's sum; what the row has so far is rescaled to the new
// maximum.
void OnlineSoftmax(const AttentionShape& shape, const TilePlace& place, Buffers& tile) {
  for (int64_t r = 0; r < place.rows; ++r) {
    float* row = tile.scores + r * kKeyTile;
    const int64_t n = VisibleColumns(shape, place, r);
    std::fill(row + n, row + place.columns, 0.0F);
    if (n == 0) continue;
    const float max = std::max(tile.max[r], Kernels().max(row, n));
    const float rescale = std::exp(tile.max[r] - max);
    tile.sum[r] = tile.sum[r] * rescale + Kernels().exp_sum(row, max, n, row);
    tile.max[r] = max;
    float* output = tile.output + r * shape.padded_dim;
    if (rescale != 1.0F) Kernels().scale(output, rescale, shape.padded_dim, output);
    if (!shape.mask.empty()) {
      RowFactors(shape, place, r, n, tile.factors);
      Kernels().multiply_rows(row, tile.factors, n, row);
    }
  }
}

struct Forward {
  TensorView q, k, v, o, lse;
};

void WriteQueries(const AttentionShape& shape, const Forward& op, const TilePlace& place,
                  Buffers& tile, bool add) {
  for (int64_t r = 0; r < place.rows; ++r) {
    float* output = tile.output + r * shape.padded_dim;
    const float sum = tile.sum[r];
    // A query that sees no key yields 0; one that is not a number stays so.
    Kernels().scale(output, sum == 0 ? 0.0F : 1.0F / sum, shape.head_dim, output);
    WriteOrAdd(op.o, place.b * shape.queries + place.query + r, place.head * shape.head_dim,
               shape.head_dim, output, add);
    if (!op.lse) continue;
    const int64_t line = (place.b * shape.heads + place.head) * shape.queries + place.query + r;
    op.lse.As<float>()[line] =
        sum == 0 ? -std::numeric_limits<float>::infinity() : tile.max[r] + std::log(sum);
  }
}

void QueryTile(const AttentionShape& shape, const Forward& op, TilePlace place, bool add) {
  auto& tile = ThreadBuffers<Buffers>();
  LoadHead(op.q, place.b * shape.queries + place.query, place.rows, place.head, shape, shape.scale,
           tile.queries);
  std::fill_n(tile.max, kQueryTile, -std::numeric_limits<float>::infinity());
  std::fill_n(tile.sum, kQueryTile, 0.0F);
  std::fill_n(tile.output, kQueryTile * shape.padded_dim, 0.0F);
  const int64_t end = shape.Visible(place.b, place.query + place.rows - 1);
  for (place.key = 0; place.key < end; place.key += kKeyTile) {
    place.columns = std::min(kKeyTile, end - place.key);
    const int64_t key_row = place.b * shape.keys + place.key;
    const int64_t kv_head = place.head / shape.group();
    LoadHead(op.k, key_row, place.columns, kv_head, shape, 1.0F, tile.keys);
    LoadHead(op.v, key_row, place.columns, kv_head, shape, 1.0F, tile.values);
    Kernels().transpose(tile.keys, shape.padded_dim, place.columns, shape.head_dim,
                        tile.keys_turned, kKeyTile);
    Scores(shape, place, tile.queries, tile.keys_turned, tile.scores);
    OnlineSoftmax(shape, place, tile);
    Kernels().multiply(place.rows, shape.padded_dim, place.columns, tile.scores, kKeyTile, 1,
                       tile.values, shape.padded_dim, tile.output, shape.padded_dim, true);
  }
  WriteQueries(shape, op, place, tile, add);
}

}  // namespace

void RunAttention(const OpCall& call) {
  const Forward op{Operand(call.inputs, 0), Operand(call.inputs, 1), Operand(call.inputs, 2),
                   Operand(call.outputs, 0), Operand(call.outputs, 1)};
  const AttentionShape shape(call, op.q, Operand(call.inputs, 3), Operand(call.inputs, 4));
  const int64_t tiles = shape.query_tiles();
  const int64_t work = shape.keys * kQueryTile * shape.head_dim;
  ParallelForUneven(shape.batch * shape.heads * tiles, work, [&](int64_t job) {
    const int64_t query = job % tiles * kQueryTile;
    const TilePlace place{.b = job / tiles / shape.heads,
                          .head = job / tiles % shape.heads,
                          .query = query,
                          .rows = std::min(kQueryTile, shape.queries - query),
                          .key = 0,
                          .columns = 0};
    QueryTile(shape, op, place, call.attributes.accumulate);
  });
}

}  // namespace headroom::engine::cpu
