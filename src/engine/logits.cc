// SPDX-License-Identifier: Apache-2.0
#include "engine/logits.h"

#include "engine/cpu/operands.h"

namespace headroom::engine {

int64_t Likeliest(const TensorView& logits, int64_t row) {
  int64_t best = 0;
  float largest = 0;
  cpu::ForEachChunk(logits.cols(), [&](int64_t column, int64_t n) {
    cpu::Chunk buffer;
    const float* values = cpu::Read(logits, row, column, n, buffer);
    for (int64_t i = 0; i < n; ++i) {
      if (column + i > 0 && values[i] <= largest) continue;
      largest = values[i];
      best = column + i;
    }
  });
  return best;
}

int64_t CountCorrect(const Executor& executor, const ModelGraph& model, const Batch& batch) {
  const TensorView& logits = executor.View(model.logits);
  int64_t correct = 0;
  for (int64_t row = 0; row < batch.rows; ++row) {
    correct += Likeliest(logits, row) == batch.labels[static_cast<size_t>(row)] ? 1 : 0;
  }
  return correct;
}

}  // namespace headroom::engine
