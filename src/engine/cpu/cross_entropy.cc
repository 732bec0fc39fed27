// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "base/check.h"
#include "engine/cpu/cpu_ops.h"
#include "engine/cpu/operands.h"
#include "engine/cpu/parallel.h"

namespace headroom::engine::cpu {
namespace {

struct LogSumExp {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;     // of exp(x - max)
  double plain = 0;  // of x
  float Value() const { return max + std::log(sum); }
};

// One pass: the sum so far is rescaled when a chunk has a new maximum.
LogSumExp LogSumExpOf(const TensorView& logits, int64_t row, bool plain) {
  LogSumExp result;
  Chunk buffer;
  ForEachChunk(logits.cols(), [&](int64_t column, int64_t n) {
    const float* x = Read(logits, row, column, n, buffer);
    const float max = std::max(result.max, Kernels().max(x, n));
    result.sum = result.sum * std::exp(result.max - max) + Kernels().sum_exp(x, max, n);
    result.max = max;
    if (plain) result.plain += static_cast<double>(Kernels().sum(x, n));
  });
  return result;
}

float ValueAt(const TensorView& tensor, int64_t row, int64_t column) {
  Chunk buffer;
  return *Read(tensor, row, column, 1, buffer);
}

// (softmax - smoothed target) * factor, over the logits themselves. `kept` and `spread` are the
// target's probability beyond the uniform one, and the uniform one.
void Gradient(const TensorView& logits, int64_t row, int64_t label, float log_sum, float kept,
              float spread, float factor) {
  ForEachChunk(logits.cols(), [&](int64_t column, int64_t n) {
    Chunk buffer;
    const float* x = Read(logits, row, column, n, buffer);
    float* gradient = Target(logits, row, column, buffer);
    Kernels().softmax_gradient(x, log_sum, spread, factor, n, gradient);
    if (label >= column && label < column + n) gradient[label - column] -= kept * factor;
    Write(logits, row, column, n, gradient);
  });
}

// Loss as torch.nn.functional.cross_entropy of PyTorch 2.11 defines it with label_smoothing.
float LossOfRow(const OpCall& call, const TensorView& logits, int64_t row, int64_t label) {
  const int64_t columns = logits.cols();
  if (label == call.attributes.ignore_index) {
    if (call.step.training) {
      std::memset(Address(logits, row, 0), 0,
                  static_cast<size_t>(columns * ElementSize(logits.dtype)));
    }
    return 0;
  }
  HEADROOM_CHECK(label >= 0 && label < columns, "a label beyond the classes");
  const float smoothing = call.attributes.label_smoothing;
  const LogSumExp all = LogSumExpOf(logits, row, smoothing != 0);
  const float log_sum = all.Value();
  const float nll = log_sum - ValueAt(logits, row, label);
  const auto uniform = log_sum - static_cast<float>(all.plain / static_cast<double>(columns));
  const float loss = smoothing == 0 ? nll : (1 - smoothing) * nll + smoothing * uniform;
  if (call.step.training) {
    Gradient(logits, row, label, log_sum, 1 - smoothing, smoothing / static_cast<float>(columns),
             call.step.loss_scale / call.step.targets);
  }
  return loss;
}

}  // namespace

void CrossEntropyRows(const OpCall& call, const TensorView& logits, const TensorView& labels,
                      int64_t first_label, const TensorView& loss) {
  for (int64_t start = 0; start < logits.rows(); start += kLossRows) {
    const int64_t rows = std::min(kLossRows, logits.rows() - start);
    float losses[kLossRows];
    ParallelFor(rows, 16 * logits.cols(), [&](int64_t i) {
      losses[i] = LossOfRow(call, logits, start + i, IndexAt(labels, first_label + start + i));
    });
    double sum = 0;
    for (int64_t i = 0; i < rows; ++i) sum += static_cast<double>(losses[i]);
    loss.As<float>()[0] += static_cast<float>(sum);
  }
}

void RunCrossEntropy(const OpCall& call) {
  CrossEntropyRows(call, Operand(call.inputs, 0), Operand(call.inputs, 1), 0,
                   Operand(call.outputs, 0));
}

}  // namespace headroom::engine::cpu
