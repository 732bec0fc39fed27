// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "engine/cpu/cpu_ops.h"
#include "engine/cpu/operands.h"
#include "engine/cpu/parallel.h"

namespace headroom::engine::cpu {
namespace {

// Adds rows of dy to one chunk of a float32 sum, in blocks as SumRows does.
class RowSum {
 public:
  RowSum(const TensorView& dy, int64_t column, int64_t n) : dy_(dy), column_(column), n_(n) {}

  void Add(int64_t row) {
    Kernels().add(Read(dy_, row, column_, n_, buffer_), block_, n_, block_);
    if (++in_block_ == kRowBlock) Flush();
  }
  const float* Total() {
    Flush();
    return total_;
  }
  void Clear() {
    in_block_ = 0;
    std::fill_n(block_, n_, 0.0F);
    std::fill_n(total_, n_, 0.0F);
  }
  void ScaleTotal(float factor) {
    Flush();
    Kernels().scale(total_, factor, n_, total_);
  }

 private:
  void Flush() {
    Kernels().add(total_, block_, n_, total_);
    std::fill_n(block_, n_, 0.0F);
    in_block_ = 0;
  }

  const TensorView& dy_;
  int64_t column_;
  int64_t n_;
  int64_t in_block_ = 0;
  Chunk buffer_;
  alignas(64) float block_[kColumnBlock] = {};
  alignas(64) float total_[kColumnBlock] = {};
};

// Calls job(column, n) for blocks of columns, of which each writes its own.
template <typename Job>
void ForColumns(const TensorView& dy, const Job& job) {
  const int64_t columns = dy.cols();
  ParallelFor((columns + kColumnBlock - 1) / kColumnBlock, dy.rows() * kColumnBlock,
              [&](int64_t block) {
                const int64_t column = block * kColumnBlock;
                job(column, std::min(kColumnBlock, columns - column));
              });
}

void ZeroRows(const TensorView& out, int64_t first) {
  ParallelFor(out.rows() - first, out.cols(), [&](int64_t i) {
    std::memset(Address(out, first + i, 0), 0,
                static_cast<size_t>(out.cols() * ElementSize(out.dtype)));
  });
}

// Rows with the same id lie one behind the other in the order, so that each row of the table is
// summed in float32 and written once, whatever its type.
void TableGradient(const OpCall& call, const TensorView& dy, const TensorView& ids,
                   const TensorView& dtable) {
  const TensorView scratch = Operand(call.scratch, 0);
  HEADROOM_CHECK(scratch && scratch.shape.NumElements() >= dy.rows(),
                 "embedding_backward without room for the order of its rows");
  int32_t* order = scratch.As<int32_t>();
  const int64_t rows = dy.rows();
  for (int64_t row = 0; row < rows; ++row) order[row] = static_cast<int32_t>(row);
  std::sort(order, order + rows, [&](int32_t a, int32_t b) {
    const int64_t left = IndexAt(ids, a);
    const int64_t right = IndexAt(ids, b);
    return left != right ? left < right : a < b;
  });
  const bool add = AddsToWeight(call);
  if (!add) ZeroRows(dtable, 0);
  ForColumns(dy, [&](int64_t column, int64_t n) {
    RowSum sum(dy, column, n);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t id = IndexAt(ids, order[i]);
      if (id == call.attributes.padding_row) continue;
      sum.Add(order[i]);
      if (i + 1 < rows && IndexAt(ids, order[i + 1]) == id) continue;
      sum.ScaleTotal(call.attributes.embedding_scale);
      WriteOrAdd(dtable, id, column, n, sum.Total(), add);
      sum.Clear();
    }
  });
}

void PositionGradient(const OpCall& call, const TensorView& dy, const TensorView& dpositions) {
  const bool add = AddsToWeight(call);
  const int64_t offset = call.attributes.position_offset;
  if (!add) ZeroRows(dpositions, 0);
  ForColumns(dy, [&](int64_t column, int64_t n) {
    RowSum sum(dy, column, n);
    for (int64_t s = 0; s < call.attributes.sequence; ++s) {
      for (int64_t b = 0; b < call.attributes.batch; ++b) sum.Add(b * call.attributes.sequence + s);
      WriteOrAdd(dpositions, s + offset, column, n, sum.Total(), add);
      sum.Clear();
    }
  });
}

void TypeGradient(const OpCall& call, const TensorView& dy, const TensorView& type_ids,
                  const TensorView& dtypes) {
  const bool add = AddsToWeight(call);
  ForColumns(dy, [&](int64_t column, int64_t n) {
    RowSum sum(dy, column, n);
    for (int64_t type = 0; type < dtypes.rows(); ++type) {
      for (int64_t row = 0; row < dy.rows(); ++row) {
        if ((type_ids ? IndexAt(type_ids, row) : 0) == type) sum.Add(row);
      }
      WriteOrAdd(dtypes, type, column, n, sum.Total(), add);
      sum.Clear();
    }
  });
}

}  // namespace

void RunEmbedding(const OpCall& call) {
  const TensorView ids = Operand(call.inputs, 0);
  const TensorView table = Operand(call.inputs, 1);
  const TensorView positions = Operand(call.inputs, 2);
  const TensorView types = Operand(call.inputs, 3);
  const TensorView type_ids = Operand(call.inputs, 4);
  const TensorView y = Operand(call.outputs, 0);
  HEADROOM_CHECK(!positions || (call.attributes.sequence > 0 &&
                                call.attributes.sequence + call.attributes.position_offset <=
                                    positions.rows()),
                 "a sequence longer than the table of positions");
  ParallelFor(y.rows(), 3 * y.cols(), [&](int64_t row) {
    const int64_t id = IndexAt(ids, row);
    const int64_t type = type_ids ? IndexAt(type_ids, row) : 0;
    HEADROOM_CHECK(id >= 0 && id < table.rows(), "a token beyond the vocabulary");
    HEADROOM_CHECK(!types || (type >= 0 && type < types.rows()), "a token type that has no row");
    ForEachChunk(y.cols(), [&](int64_t column, int64_t n) {
      Chunk buffer;
      Chunk sum;
      Kernels().scale(Read(table, id, column, n, buffer), call.attributes.embedding_scale, n,
                      sum.values);
      if (positions) {
        const int64_t position = row % call.attributes.sequence + call.attributes.position_offset;
        Kernels().add(Read(positions, position, column, n, buffer), sum.values, n, sum.values);
      }
      if (types) {
        Kernels().add(Read(types, type, column, n, buffer), sum.values, n, sum.values);
      }
      Write(y, row, column, n, sum.values);
    });
  });
}

void RunEmbeddingBackward(const OpCall& call) {
  const TensorView dy = Operand(call.inputs, 0);
  const TensorView dtable = Operand(call.outputs, 0);
  const TensorView dpositions = Operand(call.outputs, 1);
  const TensorView dtypes = Operand(call.outputs, 2);
  if (dtable) TableGradient(call, dy, Operand(call.inputs, 1), dtable);
  if (dpositions) PositionGradient(call, dy, dpositions);
  if (dtypes) TypeGradient(call, dy, Operand(call.inputs, 2), dtypes);
}

}  // namespace headroom::engine::cpu
