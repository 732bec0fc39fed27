// SPDX-License-Identifier: Apache-2.0
#include "graph/op_work.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace headroom::graph {
namespace {

// Operations an element, counted from the formulas; backward of a norm takes twice its forward.
constexpr double kLayerNormFlops = 8;     // mean 1, variance 3, normalising 2, scale and shift 2
constexpr double kRmsNormFlops = 4;       // squares and their sum 2, normalising 1, scale 1
constexpr double kDropoutFlops = 2;       // a comparison and a product
constexpr double kRopeFlops = 3;          // two products and a sum
constexpr double kCrossEntropyFlops = 9;  // softmax's 5, its gradient's 4
constexpr double kGradNormFlops = 2;      // a square and its sum
constexpr double kAdamFlops = 15;         // 14 of the update, 1 of clipping
constexpr double kSgdFlops = 3;           // likewise 2 and 1
constexpr double kMomentumFlops = 2;      // beside them
constexpr double kAttentionBackwardOver = 2.5;  // five products for the forward's two

TensorId At(const std::vector<TensorId>& operands, size_t position) {
  return position < operands.size() ? operands[position] : kNoTensor;
}

double ActivationFlops(ActivationKind kind, bool backward) {
  switch (kind) {
    case ActivationKind::kGelu:  // x / 2 * (1 + erf(x * c)); dy * (cdf + x * pdf)
      return backward ? 11 : 5;
    case ActivationKind::kGeluTanh:  // x / 2 * (1 + tanh(c * (x + d * x^3)))
      return backward ? 18 : 9;
    case ActivationKind::kSilu:  // x / (1 + exp(-x)); dy * s * (1 + x * (1 - s))
      return backward ? 8 : 4;
    case ActivationKind::kTanh:
      return backward ? 3 : 1;
    case ActivationKind::kRelu:
      return 1;
  }
  return 0;
}

class Counter {
 public:
  Counter(const Graph& graph, const Op& op, Micro micro) : graph_(graph), op_(op), micro_(micro) {}

  OpWork Count() const {
    OpWork work{.flops = Flops(), .dtype = graph_.tensor(op_.inputs[0]).dtype};
    Traffic(work);
    return work;
  }

 private:
  double Elements(TensorId id) const {
    return id == kNoTensor ? 0 : static_cast<double>(graph_.tensor(id).shape.NumElements());
  }
  double BytesOf(TensorId id) const { return id == kNoTensor ? 0 : Elements(id) * Size(id); }
  double Size(TensorId id) const {
    return static_cast<double>(ElementSize(graph_.tensor(id).dtype));
  }
  double Columns(TensorId id) const { return static_cast<double>(graph_.tensor(id).shape[-1]); }
  bool Has(const std::vector<TensorId>& operands, size_t position) const {
    return At(operands, position) != kNoTensor;
  }
  // Whether this op adds to the output in place of writing it.
  bool Adds(TensorId output) const {
    const bool gradient = graph_.tensor(output).role == Role::kGradient;
    return op_.attributes.accumulate || (gradient && micro_ == Micro::kLater);
  }

  double Flops() const;
  double NormFlops() const;
  double AttentionFlops() const;
  double LinearLossFlops() const;
  double UpdateFlops() const;
  void Traffic(OpWork& work) const;
  void EmbeddingTraffic(OpWork& work) const;
  void EmbeddingBackwardTraffic(OpWork& work) const;
  void SelectTraffic(OpWork& work) const;

  const Graph& graph_;
  const Op& op_;
  const Micro micro_;
};

double Counter::Flops() const {
  const OpAttributes& attributes = op_.attributes;
  const TensorId in = op_.inputs[0];
  const TensorId out = At(op_.outputs, 0);
  switch (op_.kind) {
    case OpKind::kEmbedding:  // one sum for each table behind the first
      return Elements(out) * (Has(op_.inputs, 2) + Has(op_.inputs, 3));
    case OpKind::kEmbeddingBackward:
      return Elements(in) * (Has(op_.outputs, 0) + Has(op_.outputs, 1) + Has(op_.outputs, 2));
    case OpKind::kLinear:
      return 2 * Elements(out) * Columns(in);
    case OpKind::kLinearBackwardInput:
    case OpKind::kLinearBackwardWeight:
      return 2 * Elements(in) *
             Columns(op_.kind == OpKind::kLinearBackwardInput ? out : op_.inputs[1]);
    case OpKind::kNorm:
    case OpKind::kNormBackward:
      return NormFlops();
    case OpKind::kAttention:
      return AttentionFlops();
    case OpKind::kAttentionBackward:
      return kAttentionBackwardOver * AttentionFlops();
    case OpKind::kRope:
    case OpKind::kRopeBackward:
      return kRopeFlops * Elements(in);
    case OpKind::kActivation:
      return ActivationFlops(attributes.activation, false) * Elements(in);
    case OpKind::kActivationBackward:
      return (ActivationFlops(attributes.activation, true) + Has(op_.outputs, 1)) * Elements(in);
    case OpKind::kGlu:  // and the product with `up`
      return (ActivationFlops(attributes.activation, false) + 1) * Elements(out);
    case OpKind::kGluBackward:  // the activation again, and a product for each of the two gradients
      return (ActivationFlops(attributes.activation, false) +
              ActivationFlops(attributes.activation, true) + 2) *
             Elements(in);
    case OpKind::kAdd:
      return Elements(out);
    case OpKind::kDropout:
    case OpKind::kDropoutBackward:
      return kDropoutFlops * Elements(in);
    case OpKind::kSelectRows:
    case OpKind::kSelectRowsBackward:
      return 0;
    case OpKind::kCrossEntropy:
      return kCrossEntropyFlops * Elements(in);
    case OpKind::kLinearLoss:
      return LinearLossFlops();
    case OpKind::kGradNorm:
    case OpKind::kUpdate:
      return UpdateFlops();
  }
  return 0;
}

double Counter::NormFlops() const {
  const bool backward = op_.kind == OpKind::kNormBackward;
  double each = op_.attributes.norm == NormKind::kLayerNorm ? kLayerNormFlops : kRmsNormFlops;
  if (backward) each *= 2;
  if (op_.attributes.dropout > 0) each += kDropoutFlops;
  // The sum with the residual; what else reads that sum owes it, and is added.
  if (Has(op_.inputs, backward ? 5 : 1)) each += 1;
  if (backward && Has(op_.outputs, 4)) each += 1;  // the sum of its rows, for a bias
  return each * Elements(op_.inputs[0]);
}

// Of the forward: two products of the pairs that a causal mask does not hide.
double Counter::AttentionFlops() const {
  const OpAttributes& a = op_.attributes;
  const auto keys = static_cast<double>(a.key_sequence > 0 ? a.key_sequence : a.sequence);
  const double visible = a.causal ? (keys + 1) / 2 : keys;
  const double rows = static_cast<double>(a.batch * a.sequence) * a.heads;
  return 4 * rows * visible * a.head_dim;
}

// The logits, their softmax, and a product for each gradient that it makes beside the loss.
double Counter::LinearLossFlops() const {
  const TensorId x = op_.inputs[0];
  const double logits =
      Elements(x) / Columns(x) * static_cast<double>(graph_.tensor(op_.inputs[1]).shape[0]);
  const double products = 1 + Has(op_.outputs, 1) + Has(op_.outputs, 2);
  return products * 2 * logits * Columns(x) + kCrossEntropyFlops * logits;
}

double Counter::UpdateFlops() const {
  const bool update = op_.kind == OpKind::kUpdate;
  double each = kGradNormFlops;
  if (update) {
    const bool sgd = op_.attributes.optimizer == OptimizerKind::kSgd;
    each = sgd ? kSgdFlops + (op_.attributes.momentum > 0 ? kMomentumFlops : 0) : kAdamFlops;
  }
  double elements = 0;
  for (size_t i = update ? 1 : 0; i < op_.inputs.size(); ++i) elements += Elements(op_.inputs[i]);
  return each * elements;
}

void Counter::Traffic(OpWork& work) const {
  switch (op_.kind) {
    case OpKind::kEmbedding:
      return EmbeddingTraffic(work);
    case OpKind::kEmbeddingBackward:
      return EmbeddingBackwardTraffic(work);
    case OpKind::kSelectRows:
    case OpKind::kSelectRowsBackward:
      return SelectTraffic(work);
    default:
      break;
  }
  for (size_t i = 0; i < op_.inputs.size(); ++i) {
    const auto end = op_.inputs.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(op_.inputs.begin(), end, op_.inputs[i]) == end)
      work.read += BytesOf(op_.inputs[i]);
  }
  for (size_t i = 0; i < op_.outputs.size(); ++i) {
    const TensorId output = op_.outputs[i];
    if (output == kNoTensor) continue;
    work.written += BytesOf(output);
    // The update reads all that it writes but the 16-bit copies.
    const bool reads = op_.kind == OpKind::kUpdate ? i % kUpdateOutputs != 3 : Adds(output);
    if (reads) work.read += BytesOf(output);
  }
  if (op_.kind == OpKind::kCrossEntropy) work.written += BytesOf(op_.inputs[0]);
}

// A row of the table for each token; positions and types are read once.
void Counter::EmbeddingTraffic(OpWork& work) const {
  const TensorId table = op_.inputs[1];
  const TensorId positions = At(op_.inputs, 2);
  work.written = BytesOf(op_.outputs[0]);
  work.read = BytesOf(op_.inputs[0]) + Elements(op_.outputs[0]) * Size(table) +
              BytesOf(At(op_.inputs, 3)) + BytesOf(At(op_.inputs, 4));
  if (positions != kNoTensor) {
    work.read +=
        static_cast<double>(op_.attributes.sequence) * Columns(positions) * Size(positions);
  }
}

// A table's gradient is written whole; what is added to is read and written where tokens are.
void Counter::EmbeddingBackwardTraffic(OpWork& work) const {
  for (const TensorId input : op_.inputs) work.read += BytesOf(input);
  for (const TensorId output : op_.outputs) {
    if (output == kNoTensor) continue;
    if (!Adds(output)) {
      work.written += BytesOf(output);
      continue;
    }
    const double touched = std::min(Elements(op_.inputs[0]), Elements(output)) * Size(output);
    work.read += touched;
    work.written += touched;
  }
}

// Of the long operand only the rows that are selected, but for the zeroes beside a gradient.
void Counter::SelectTraffic(OpWork& work) const {
  const bool backward = op_.kind == OpKind::kSelectRowsBackward;
  const TensorId out = op_.outputs[0];
  const double rows = backward ? BytesOf(op_.inputs[0]) : BytesOf(out);
  const bool adds = backward && Adds(out);
  work.read = rows + BytesOf(At(op_.inputs, 1)) + (adds ? rows : 0);
  work.written = backward && !adds ? BytesOf(out) : rows;
}

}  // namespace

OpWork WorkOf(const Graph& graph, const Op& op, Micro micro) {
  return Counter(graph, op, micro).Count();
}

}  // namespace headroom::graph
