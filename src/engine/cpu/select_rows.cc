// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "engine/cpu/cpu_ops.h"
#include "engine/cpu/operands.h"
#include "engine/cpu/parallel.h"

namespace headroom::engine::cpu {
namespace {

// The row of sequence b: counted from its start, or for -1 the last that is not padding.
int64_t SelectedRow(const OpCall& call, int64_t b) {
  const TensorView lengths = Operand(call.inputs, 1);
  const int64_t length = lengths ? IndexAt(lengths, b) : call.attributes.sequence;
  const int64_t row = call.attributes.row;
  const int64_t selected = row < 0 ? std::max<int64_t>(length + row, 0) : row;
  HEADROOM_CHECK(selected < call.attributes.sequence, "a row beyond the sequence");
  return selected;
}

}  // namespace

void RunSelectRows(const OpCall& call) {
  const TensorView x = Operand(call.inputs, 0);
  const TensorView y = Operand(call.outputs, 0);
  for (int64_t b = 0; b < call.attributes.batch; ++b) {
    const int64_t row = b * call.attributes.sequence + SelectedRow(call, b);
    ForEachChunk(x.cols(), [&](int64_t column, int64_t n) {
      Chunk buffer;
      Write(y, b, column, n, Read(x, row, column, n, buffer));
    });
  }
}

void RunSelectRowsBackward(const OpCall& call) {
  const TensorView dy = Operand(call.inputs, 0);
  const TensorView dx = Operand(call.outputs, 0);
  const bool add = call.attributes.accumulate;
  ParallelFor(dx.rows(), dx.cols(), [&](int64_t row) {
    const int64_t b = row / call.attributes.sequence;
    if (row % call.attributes.sequence != SelectedRow(call, b)) {
      if (add) return;
      std::memset(Address(dx, row, 0), 0, static_cast<size_t>(dx.cols() * ElementSize(dx.dtype)));
      return;
    }
    ForEachChunk(dx.cols(), [&](int64_t column, int64_t n) {
      Chunk buffer;
      WriteOrAdd(dx, row, column, n, Read(dy, b, column, n, buffer), add);
    });
  });
}

}  // namespace headroom::engine::cpu
