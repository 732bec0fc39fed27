// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "engine/cpu/cpu_ops.h"
#include "engine/cpu/operands.h"
#include "engine/cpu/parallel.h"

namespace headroom::engine::cpu {
namespace {

// What is normalised: x, or residual + dropout(x) as `sum` stores it.
class NormInput {
 public:
  explicit NormInput(const OpCall& call)
      : x_(Operand(call.inputs, 0)),
        residual_(Operand(call.inputs, 1)),
        sum_(Operand(call.outputs, 1)),
        stored_(sum_ ? sum_.dtype : x_.dtype),
        mask_(residual_ ? MaskOf(call) : DropoutMask{}) {}

  // Computes one row into `sum`, where that exists.
  void Store(int64_t row) const {
    if (!sum_) return;
    ForEachChunk(x_.cols(), [&](int64_t column, int64_t n) {
      Chunk buffer;
      Write(sum_, row, column, n, Compute(row, column, n, buffer));
    });
  }

  const float* Values(int64_t row, int64_t column, int64_t n, Chunk& buffer) const {
    return sum_ ? Read(sum_, row, column, n, buffer) : Compute(row, column, n, buffer);
  }

 private:
  const float* Compute(int64_t row, int64_t column, int64_t n, Chunk& buffer) const {
    const float* x = Read(x_, row, column, n, buffer);
    if (!residual_) return x;
    if (!mask_.empty()) {
      Chunk factors;
      Kernels().dropout(mask_, static_cast<uint64_t>(row * x_.cols() + column), n, factors.values);
      Kernels().multiply_rows(x, factors.values, n, buffer.values);
      x = buffer.values;
    }
    Chunk residual;
    Kernels().add(x, Read(residual_, row, column, n, residual), n, buffer.values);
    RoundTo(stored_, n, buffer.values);
    return buffer.values;
  }

  TensorView x_;
  TensorView residual_;
  TensorView sum_;
  DType stored_;
  DropoutMask mask_;
};

struct Statistics {
  float mean = 0;
  float rstd = 0;
};

Statistics StatisticsOf(const NormInput& input, const graph::OpAttributes& attributes, int64_t row,
                        int64_t columns) {
  Statistics statistics;
  Chunk buffer;
  const auto count = static_cast<float>(columns);
  if (attributes.norm == graph::NormKind::kLayerNorm) {
    float sum = 0;
    ForEachChunk(columns, [&](int64_t column, int64_t n) {
      sum += Kernels().sum(input.Values(row, column, n, buffer), n);
    });
    statistics.mean = sum / count;
  }
  float squares = 0;
  ForEachChunk(columns, [&](int64_t column, int64_t n) {
    squares += Kernels().squares_about(input.Values(row, column, n, buffer), statistics.mean, n);
  });
  statistics.rstd = 1.0F / std::sqrt(squares / count + attributes.eps);
  return statistics;
}

// The operands of kNormBackward.
struct Backward {
  TensorView dy, x, gamma, mean, rstd, dsum;
  TensorView dx, dresidual, dgamma, dbeta, dbias;

  explicit Backward(const OpCall& call)
      : dy(Operand(call.inputs, 0)),
        x(Operand(call.inputs, 1)),
        gamma(Operand(call.inputs, 2)),
        mean(Operand(call.inputs, 3)),
        rstd(Operand(call.inputs, 4)),
        dsum(Operand(call.inputs, 5)),
        dx(Operand(call.outputs, 0)),
        dresidual(Operand(call.outputs, 1)),
        dgamma(Operand(call.outputs, 2)),
        dbeta(Operand(call.outputs, 3)),
        dbias(Operand(call.outputs, 4)) {}

  Statistics Of(int64_t row) const {
    return {mean ? mean.As<float>()[row] : 0.0F, rstd.As<float>()[row]};
  }
};

void InputGradient(const OpCall& call, const Backward& op, int64_t row) {
  const int64_t columns = op.dy.cols();
  const Statistics statistics = op.Of(row);
  Chunk dy;
  Chunk x;
  Chunk gamma;
  NormSums means;
  ForEachChunk(columns, [&](int64_t column, int64_t n) {
    const NormSums sums = Kernels().norm_sums(
        Read(op.dy, row, column, n, dy), Read(op.x, row, column, n, x), statistics.mean,
        statistics.rstd, Read(op.gamma, 0, column, n, gamma), n);
    means.gradient += sums.gradient;
    means.projected += sums.projected;
  });
  means.projected /= static_cast<float>(columns);
  // RMSNorm takes no mean away, so none comes back.
  const bool centred = call.attributes.norm == graph::NormKind::kLayerNorm;
  means.gradient = centred ? means.gradient / static_cast<float>(columns) : 0.0F;
  const DropoutMask mask = op.dresidual ? MaskOf(call) : DropoutMask{};
  ForEachChunk(columns, [&](int64_t column, int64_t n) {
    Chunk gradient;
    Chunk other;
    Kernels().norm_gradient(Read(op.dy, row, column, n, dy), Read(op.x, row, column, n, x),
                            statistics.mean, statistics.rstd, Read(op.gamma, 0, column, n, gamma),
                            means, n, gradient.values);
    if (op.dsum) {
      Kernels().add(gradient.values, Read(op.dsum, row, column, n, other), n, gradient.values);
    }
    const bool add = call.attributes.accumulate;
    if (op.dresidual) WriteOrAdd(op.dresidual, row, column, n, gradient.values, add);
    if (!mask.empty()) {
      Kernels().dropout(mask, static_cast<uint64_t>(row * columns + column), n, other.values);
      Kernels().multiply_rows(gradient.values, other.values, n, gradient.values);
    }
    WriteOrAdd(op.dx, row, column, n, gradient.values, add);
  });
}

// dgamma and dbeta of one block of columns, over all rows.
void WeightGradient(const Backward& op, int64_t column, int64_t n, bool add) {
  Chunk dy;
  Chunk x;
  alignas(64) float dgamma[kColumnBlock] = {};
  alignas(64) float dbeta[kColumnBlock] = {};
  for (int64_t start = 0; start < op.dy.rows(); start += kRowBlock) {
    alignas(64) float gamma_block[kColumnBlock] = {};
    alignas(64) float beta_block[kColumnBlock] = {};
    for (int64_t row = start; row < std::min(op.dy.rows(), start + kRowBlock); ++row) {
      const Statistics statistics = op.Of(row);
      const float* gradient = Read(op.dy, row, column, n, dy);
      Kernels().add_normalised(gradient, Read(op.x, row, column, n, x), statistics.mean,
                               statistics.rstd, n, gamma_block);
      if (op.dbeta) Kernels().add(gradient, beta_block, n, beta_block);
    }
    Kernels().add(dgamma, gamma_block, n, dgamma);
    Kernels().add(dbeta, beta_block, n, dbeta);
  }
  if (op.dgamma) WriteOrAdd(op.dgamma, 0, column, n, dgamma, add);
  if (op.dbeta) WriteOrAdd(op.dbeta, 0, column, n, dbeta, add);
}

}  // namespace

void RunNorm(const OpCall& call) {
  const NormInput input(call);
  const TensorView gamma = Operand(call.inputs, 2);
  const TensorView beta = Operand(call.inputs, 3);
  const TensorView y = Operand(call.outputs, 0);
  const TensorView mean = Operand(call.outputs, 2);
  const TensorView rstd = Operand(call.outputs, 3);
  ParallelFor(y.rows(), 8 * y.cols(), [&](int64_t row) {
    input.Store(row);
    const Statistics statistics = StatisticsOf(input, call.attributes, row, y.cols());
    if (mean) mean.As<float>()[row] = statistics.mean;
    if (rstd) rstd.As<float>()[row] = statistics.rstd;
    ForEachChunk(y.cols(), [&](int64_t column, int64_t n) {
      Chunk x;
      Chunk scale;
      Chunk shift;
      Chunk result;
      float* out = Target(y, row, column, result);
      Kernels().normalise(input.Values(row, column, n, x), statistics.mean, statistics.rstd,
                          Read(gamma, 0, column, n, scale),
                          beta ? Read(beta, 0, column, n, shift) : nullptr, n, out);
      Write(y, row, column, n, out);
    });
  });
}

void RunNormBackward(const OpCall& call) {
  const Backward op(call);
  // The weights first: dx may be the bytes of dy.
  const int64_t columns = op.dy.cols();
  ParallelFor((columns + kColumnBlock - 1) / kColumnBlock, op.dy.rows() * kColumnBlock,
              [&](int64_t block) {
                const int64_t column = block * kColumnBlock;
                WeightGradient(op, column, std::min(kColumnBlock, columns - column),
                               call.step.micro_step > 0);
              });
  ParallelFor(op.dy.rows(), 8 * columns, [&](int64_t row) { InputGradient(call, op, row); });
  if (op.dbias) SumRows(op.dx, op.dbias, call.step.micro_step > 0);
}

}  // namespace headroom::engine::cpu
