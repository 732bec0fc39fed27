// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/cpu_ops.h"
#include "engine/cpu/operands.h"
#include "engine/cpu/parallel.h"

namespace headroom::engine::cpu {
namespace {

// Pairs are (i, i + R / 2) of each head, R the rotated dimensions, as rotate_half of transformers
// 5.17 (models/llama/modeling_llama.py) has them; dimensions beyond R stay.
void Rotate(const OpCall& call, float direction) {
  const TensorView x = Operand(call.outputs, 0);
  const TensorView cosine = Operand(call.inputs, 1);
  const TensorView sine = Operand(call.inputs, 2);
  const int64_t head_dim = call.attributes.head_dim;
  const int64_t pairs = cosine.cols();
  ParallelFor(x.rows(), 4 * x.cols(), [&](int64_t row) {
    const int64_t position = row % call.attributes.sequence;
    for (int64_t column = 0; column < x.cols(); column += head_dim) {
      for (int64_t pair = 0; pair < pairs; pair += kChunk) {
        const int64_t n = std::min(kChunk, pairs - pair);
        Chunk first;
        Chunk second;
        if (x.dtype != DType::kFloat32) {
          Read(x, row, column + pair, n, first);
          Read(x, row, column + pairs + pair, n, second);
        }
        float* left = Target(x, row, column + pair, first);
        float* right = Target(x, row, column + pairs + pair, second);
        Kernels().rotate(Floats(cosine, position, pair), Floats(sine, position, pair), direction, n,
                         left, right);
        Write(x, row, column + pair, n, left);
        Write(x, row, column + pairs + pair, n, right);
      }
    }
  });
}

}  // namespace

void RunRope(const OpCall& call) { Rotate(call, 1.0F); }

void RunRopeBackward(const OpCall& call) { Rotate(call, -1.0F); }

}  // namespace headroom::engine::cpu
