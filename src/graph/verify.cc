// SPDX-License-Identifier: Apache-2.0
#include "graph/verify.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"

namespace headroom::graph {
namespace {

// How many operands an op has, and which must be there.
struct Operands {
  size_t most_inputs;
  std::vector<size_t> needed_inputs;
  size_t most_outputs;
  std::vector<size_t> needed_outputs;
  size_t scratch = 0;
};

Operands OperandsOf(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbedding:
      return {5, {0, 1}, 1, {0}};
    case OpKind::kEmbeddingBackward:
      return {3, {0, 1}, 3, {}, 1};
    case OpKind::kLinear:
      return {3, {0, 1}, 1, {0}};
    case OpKind::kLinearBackwardInput:
      return {2, {0, 1}, 1, {0}};
    case OpKind::kLinearBackwardWeight:
      return {2, {0, 1}, 2, {0}};
    case OpKind::kNorm:
      return {4, {0, 2}, 4, {0}};
    case OpKind::kNormBackward:
      return {6, {0, 1, 2, 4}, 5, {0, 2}};
    case OpKind::kAttention:
      return {5, {0, 1, 2}, 2, {0}};
    case OpKind::kAttentionBackward:
      return {8, {0, 1, 2, 3, 4, 5}, 3, {0, 1, 2}};
    case OpKind::kRope:
    case OpKind::kRopeBackward:
      return {3, {0, 1, 2}, 1, {0}};
    case OpKind::kActivation:
    case OpKind::kGlu:
    case OpKind::kDropout:
    case OpKind::kDropoutBackward:
      return {1, {0}, 1, {0}};
    case OpKind::kActivationBackward:
      return {2, {0, 1}, 2, {0}};
    case OpKind::kGluBackward:
    case OpKind::kAdd:
      return {2, {0, 1}, 1, {0}};
    case OpKind::kSelectRows:
    case OpKind::kSelectRowsBackward:
      return {2, {0}, 1, {0}};
    case OpKind::kCrossEntropy:
      return {2, {0, 1}, 1, {0}};
    case OpKind::kLinearLoss:
      return {4, {0, 1, 3}, 4, {0}, 1};
    case OpKind::kGradNorm:
      return {SIZE_MAX, {0}, 1, {0}};
    case OpKind::kUpdate:
      return {SIZE_MAX, {0, 1}, SIZE_MAX, {0}};
  }
  return {0, {}, 0, {}};
}

TensorId At(const std::vector<TensorId>& operands, size_t position) {
  return position < operands.size() ? operands[position] : kNoTensor;
}

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  Status Run() {
    HEADROOM_RETURN_IF_ERROR(CheckTensors());
    written_.resize(graph_.tensors().size());
    for (size_t i = 0; i < graph_.ops().size(); ++i) {
      const Op& op = graph_.ops()[i];
      Status status = CheckOp(op);
      if (!status.ok()) return status.error().In(Format("op {} ({})", i, Name(op.kind)));
    }
    return {};
  }

 private:
  Status CheckTensors() const {
    std::set<std::pair<Role, std::string>> names;
    for (size_t i = 0; i < graph_.tensors().size(); ++i) {
      const Tensor& tensor = graph_.tensors()[i];
      if (tensor.base) {
        const Tensor& base = graph_.tensor(*tensor.base);
        const Bytes end = Bytes(tensor.base_offset * ElementSize(tensor.dtype)) + SizeOf(tensor);
        if (base.base || end > SizeOf(base) || tensor.base_offset < 0) {
          return Error::Internal(Format("the view {} does not lie inside {}", i, base.name));
        }
        continue;
      }
      const bool named = IsPersistent(tensor.role) || tensor.role == Role::kInput;
      if (named && !names.emplace(tensor.role, tensor.name).second) {
        return Error::Internal(Format("two {} tensors named {}", Name(tensor.role), tensor.name));
      }
    }
    return {};
  }

  bool Exists(TensorId id) const { return id == kNoTensor || Index(id) < written_.size(); }

  Status CheckOp(const Op& op) {
    const Operands operands = OperandsOf(op.kind);
    HEADROOM_RETURN_IF_ERROR(
        CheckOperands(op.inputs, operands.most_inputs, operands.needed_inputs, "input"));
    HEADROOM_RETURN_IF_ERROR(
        CheckOperands(op.outputs, operands.most_outputs, operands.needed_outputs, "output"));
    if (op.scratch.size() != operands.scratch) return Error::Internal("scratch that is missing");
    for (const TensorId input : op.inputs) {
      if (input != kNoTensor && !IsWritten(input)) {
        return Error::Internal(graph_.tensor(input).name + " is read before it is written");
      }
    }
    HEADROOM_RETURN_IF_ERROR(CheckShapes(op));
    for (const TensorId output : op.outputs) {
      if (output != kNoTensor) written_[Index(graph_.Root(output))] = true;
    }
    return {};
  }

  Status CheckOperands(const std::vector<TensorId>& operands, size_t most,
                       const std::vector<size_t>& needed, std::string_view what) const {
    if (operands.size() > most) return Error::Internal(Format("too many {}s", what));
    for (const TensorId id : operands) {
      if (!Exists(id)) return Error::Internal(Format("an {} that is no tensor", what));
    }
    for (const size_t position : needed) {
      if (At(operands, position) == kNoTensor) {
        return Error::Internal(Format("{} {} is missing", what, position));
      }
    }
    return {};
  }

  bool IsWritten(TensorId id) const {
    const TensorId root = graph_.Root(id);
    const Role role = graph_.tensor(root).role;
    const bool from_outside = role != Role::kActivation && role != Role::kTemporary;
    return from_outside || written_[Index(root)];
  }

  const Shape& ShapeOf(TensorId id) const { return graph_.tensor(id).shape; }

  Status Same(TensorId a, TensorId b) const {
    if (a == kNoTensor || b == kNoTensor || ShapeOf(a) == ShapeOf(b)) return {};
    return Error::Internal(Format("{} is {}, {} is {}", graph_.tensor(a).name,
                                  ShapeOf(a).ToString(), graph_.tensor(b).name,
                                  ShapeOf(b).ToString()));
  }

  Status Is(TensorId id, const Shape& shape) const {
    if (id == kNoTensor || ShapeOf(id) == shape) return {};
    return Error::Internal(Format("{} is {}, and should be {}", graph_.tensor(id).name,
                                  ShapeOf(id).ToString(), shape.ToString()));
  }

  // y [N, M] = x [N, K] * weight, with bias [M].
  Status CheckProduct(TensorId x, TensorId weight, TensorId bias, TensorId y,
                      bool transposed) const {
    const Shape& w = ShapeOf(weight);
    const int64_t in = w[transposed ? 0 : 1];
    const int64_t out = w[transposed ? 1 : 0];
    HEADROOM_RETURN_IF_ERROR(Is(x, Shape{ShapeOf(x)[0], in}));
    HEADROOM_RETURN_IF_ERROR(Is(bias, Shape{out}));
    return Is(y, Shape{ShapeOf(x)[0], out});
  }

  Status CheckAttention(const Op& op) const {
    const OpAttributes& a = op.attributes;
    const size_t q = op.kind == OpKind::kAttention ? 0 : 1;
    const int64_t keys = a.key_sequence > 0 ? a.key_sequence : a.sequence;
    const Shape query{a.batch * a.sequence, int64_t{a.heads} * a.head_dim};
    const Shape key{a.batch * keys, int64_t{a.kv_heads} * a.head_dim};
    HEADROOM_RETURN_IF_ERROR(Is(op.inputs[q], query));
    HEADROOM_RETURN_IF_ERROR(Is(op.inputs[q + 1], key));
    HEADROOM_RETURN_IF_ERROR(Is(op.inputs[q + 2], key));
    HEADROOM_RETURN_IF_ERROR(Is(op.outputs[0], query));
    if (q == 0) return {};
    HEADROOM_RETURN_IF_ERROR(Is(op.inputs[0], query));
    HEADROOM_RETURN_IF_ERROR(Is(op.outputs[1], key));
    return Is(op.outputs[2], key);
  }

  Status CheckNorm(const Op& op) const {
    const Shape& x = ShapeOf(op.inputs[0]);
    for (const TensorId id : {op.inputs[1], op.outputs[0], op.outputs[1]}) {
      HEADROOM_RETURN_IF_ERROR(Is(id, x));
    }
    for (const TensorId id : {op.inputs[2], At(op.inputs, 3)}) {
      HEADROOM_RETURN_IF_ERROR(Is(id, Shape{x[-1]}));
    }
    return {};
  }

  // The gradient of a bias that is summed where dx is written: of all of dx, and nothing else.
  Status CheckSums(const Op& op) const {
    const TensorId sums = At(op.outputs, SumsOutput(op.kind));
    if (sums == kNoTensor) return {};
    if (op.attributes.accumulate) return Error::Internal("sums over rows that are added to");
    return Is(sums, Shape{ShapeOf(op.outputs[0])[-1]});
  }

  Status CheckShapes(const Op& op) const {
    switch (op.kind) {
      case OpKind::kLinear:
        return CheckProduct(op.inputs[0], op.inputs[1], At(op.inputs, 2), op.outputs[0],
                            op.attributes.transposed);
      case OpKind::kLinearBackwardInput:
        return CheckProduct(op.outputs[0], op.inputs[1], kNoTensor, op.inputs[0],
                            op.attributes.transposed);
      case OpKind::kLinearBackwardWeight:
        return CheckProduct(op.inputs[1], op.outputs[0], At(op.outputs, 1), op.inputs[0],
                            op.attributes.transposed);
      case OpKind::kNorm:
        return CheckNorm(op);
      case OpKind::kNormBackward:
        HEADROOM_RETURN_IF_ERROR(Same(op.inputs[0], op.inputs[1]));
        HEADROOM_RETURN_IF_ERROR(Same(op.inputs[0], op.outputs[0]));
        HEADROOM_RETURN_IF_ERROR(CheckSums(op));
        return Same(op.inputs[2], op.outputs[2]);
      case OpKind::kAttention:
      case OpKind::kAttentionBackward:
        return CheckAttention(op);
      case OpKind::kRope:
      case OpKind::kRopeBackward:
      case OpKind::kActivation:
      case OpKind::kDropout:
      case OpKind::kDropoutBackward:
        return Same(op.inputs[0], op.outputs[0]);
      case OpKind::kActivationBackward:
        HEADROOM_RETURN_IF_ERROR(CheckSums(op));
        [[fallthrough]];
      case OpKind::kAdd:
        HEADROOM_RETURN_IF_ERROR(Same(op.inputs[0], op.inputs[1]));
        return Same(op.inputs[0], op.outputs[0]);
      case OpKind::kGlu:
        return Is(op.inputs[0], Shape{ShapeOf(op.outputs[0])[0], 2 * ShapeOf(op.outputs[0])[1]});
      case OpKind::kGluBackward:
        return Same(op.inputs[1], op.outputs[0]);
      case OpKind::kLinearLoss:
        HEADROOM_RETURN_IF_ERROR(Same(op.inputs[0], At(op.outputs, 1)));
        HEADROOM_RETURN_IF_ERROR(Same(op.inputs[1], At(op.outputs, 2)));
        return Is(op.scratch[0], Shape{ShapeOf(op.scratch[0])[0], ShapeOf(op.inputs[1])[0]});
      case OpKind::kUpdate:
        return CheckUpdate(op);
      default:
        return {};
    }
  }

  Status CheckUpdate(const Op& op) const {
    const size_t parameters = op.inputs.size() - 1;
    if (op.outputs.size() != kUpdateOutputs * parameters) {
      return Error::Internal(Format("{} outputs for {} parameters", op.outputs.size(), parameters));
    }
    for (size_t i = 0; i < parameters; ++i) {
      for (size_t k = 0; k < 4; ++k) {
        HEADROOM_RETURN_IF_ERROR(Same(op.inputs[i + 1], op.outputs[kUpdateOutputs * i + k]));
      }
    }
    return {};
  }

  const Graph& graph_;
  std::vector<bool> written_;
};

}  // namespace

Status Verify(const Graph& graph) { return Verifier(graph).Run(); }

}  // namespace headroom::graph
