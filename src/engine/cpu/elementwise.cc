// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/cpu_ops.h"
#include "engine/cpu/operands.h"
#include "engine/cpu/parallel.h"

namespace headroom::engine::cpu {
namespace {

// Calls job(row, column, n, out) for each chunk of `to` and writes, or adds, what it left in out.
template <typename Job>
void ForOutput(const OpCall& call, const TensorView& to, int64_t work, const Job& job) {
  ParallelFor(to.rows(), work * to.cols(), [&](int64_t row) {
    ForEachChunk(to.cols(), [&](int64_t column, int64_t n) {
      Chunk buffer;
      const bool add = call.attributes.accumulate;
      float* out = add ? buffer.values : Target(to, row, column, buffer);
      job(row, column, n, out);
      WriteOrAdd(to, row, column, n, out, add);
    });
  });
}

void Drop(const OpCall& call) {
  const TensorView from = Operand(call.inputs, 0);
  const TensorView to = Operand(call.outputs, 0);
  const DropoutMask mask = MaskOf(call);
  ForOutput(call, to, 16, [&](int64_t row, int64_t column, int64_t n, float* out) {
    Chunk x;
    const float* values = Read(from, row, column, n, x);
    if (mask.empty()) {
      std::memmove(out, values, static_cast<size_t>(n) * sizeof(float));
      return;
    }
    Chunk factors;
    Kernels().dropout(mask, static_cast<uint64_t>(row * to.cols() + column), n, factors.values);
    Kernels().multiply_rows(values, factors.values, n, out);
  });
}

}  // namespace

void RunActivation(const OpCall& call) {
  const TensorView x = Operand(call.inputs, 0);
  ForOutput(
      call, Operand(call.outputs, 0), 16, [&](int64_t row, int64_t column, int64_t n, float* out) {
        Chunk buffer;
        Kernels().activation(call.attributes.activation, Read(x, row, column, n, buffer), n, out);
      });
}

void RunActivationBackward(const OpCall& call) {
  const TensorView dy = Operand(call.inputs, 0);
  const TensorView x = Operand(call.inputs, 1);
  const TensorView dx = Operand(call.outputs, 0);
  const TensorView dbias = Operand(call.outputs, 1);
  ForOutput(call, dx, 16, [&](int64_t row, int64_t column, int64_t n, float* out) {
    Chunk gradient;
    Chunk value;
    Kernels().activation_gradient(call.attributes.activation, Read(dy, row, column, n, gradient),
                                  Read(x, row, column, n, value), n, out);
  });
  if (dbias) SumRows(dx, dbias, call.step.micro_step > 0);
}

void RunGlu(const OpCall& call) {
  const TensorView x = Operand(call.inputs, 0);
  const TensorView y = Operand(call.outputs, 0);
  ForOutput(call, y, 16, [&](int64_t row, int64_t column, int64_t n, float* out) {
    Chunk gate;
    Chunk up;
    Chunk active;
    Kernels().activation(call.attributes.activation, Read(x, row, column, n, gate), n,
                         active.values);
    Kernels().multiply_rows(active.values, Read(x, row, y.cols() + column, n, up), n, out);
  });
}

void RunGluBackward(const OpCall& call) {
  const TensorView dy = Operand(call.inputs, 0);
  const TensorView x = Operand(call.inputs, 1);
  const TensorView dx = Operand(call.outputs, 0);
  const bool add = call.attributes.accumulate;
  ParallelFor(dy.rows(), 32 * dy.cols(), [&](int64_t row) {
    ForEachChunk(dy.cols(), [&](int64_t column, int64_t n) {
      Chunk buffers[3];
      Chunk dgate;
      Chunk dup;
      const float* gradient = Read(dy, row, column, n, buffers[0]);
      const float* gate = Read(x, row, column, n, buffers[1]);
      const float* up = Read(x, row, dy.cols() + column, n, buffers[2]);
      Kernels().activation(call.attributes.activation, gate, n, dup.values);
      Kernels().multiply_rows(dup.values, gradient, n, dup.values);
      Kernels().multiply_rows(gradient, up, n, dgate.values);
      Kernels().activation_gradient(call.attributes.activation, dgate.values, gate, n,
                                    dgate.values);
      WriteOrAdd(dx, row, column, n, dgate.values, add);
      WriteOrAdd(dx, row, dy.cols() + column, n, dup.values, add);
    });
  });
}

void RunAdd(const OpCall& call) {
  const TensorView a = Operand(call.inputs, 0);
  const TensorView b = Operand(call.inputs, 1);
  ForOutput(call, Operand(call.outputs, 0), 2,
            [&](int64_t row, int64_t column, int64_t n, float* out) {
              Chunk left;
              Chunk right;
              Kernels().add(Read(a, row, column, n, left), Read(b, row, column, n, right), n, out);
            });
}

void RunDropout(const OpCall& call) { Drop(call); }

void RunDropoutBackward(const OpCall& call) { Drop(call); }

}  // namespace headroom::engine::cpu
