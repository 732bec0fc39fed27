// SPDX-License-Identifier: Apache-2.0
#include "graph/gradients.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "graph/recompute.h"

namespace headroom::graph {
namespace {

constexpr std::array<std::string_view, 3> kRecomputeNames = {"none", "cheap", "block"};

TensorId At(const std::vector<TensorId>& operands, size_t position) {
  return position < operands.size() ? operands[position] : kNoTensor;
}

class Backward {
 public:
  Backward(Graph& graph, const BackwardOptions& options)
      : graph_(graph), options_(options), recomputer_(graph, options.recompute) {
    for (size_t i = 0; i < graph.parameters().size(); ++i) {
      parameter_of_[static_cast<uint32_t>(graph.parameters()[i].weight)] = i;
    }
    contributed_.resize(graph.parameters().size());
  }

  void Run() {
    const size_t forward_ops = graph_.ops().size();
    for (size_t i = forward_ops; i-- > 0;) {
      const Op op = graph_.ops()[i];
      recomputer_.Enter(op);
      Differentiate(i, op);
    }
    for (size_t i = 0; i < contributed_.size(); ++i) {
      HEADROOM_CHECK(contributed_[i], "a parameter without a gradient: " +
                                          graph_.tensor(graph_.parameters()[i].weight).name);
    }
  }

 private:
  // Where a gradient goes, and whether it is added to what lies there.
  struct Slot {
    TensorId tensor = kNoTensor;
    bool accumulate = false;
  };

  void Differentiate(size_t position, const Op& op);
  void Embedding(const Op& op);
  void Linear(const Op& op);
  void Norm(const Op& op);
  void Attention(const Op& op);
  void Rope(const Op& op);
  void Elementwise(const Op& op, OpKind backward, bool reads_input);
  void Add(const Op& op);
  void SelectRows(const Op& op);
  void LinearLoss(size_t position, const Op& op);

  bool IsActivation(TensorId id) const {
    return id != kNoTensor && graph_.tensor(id).role == Role::kActivation;
  }
  TensorId GradientOf(TensorId id) const {
    const auto found = gradients_.find(static_cast<uint32_t>(id));
    return found == gradients_.end() ? kNoTensor : found->second;
  }
  // REQUIRES: something has contributed to it.
  TensorId Owed(TensorId id) const {
    const TensorId gradient = GradientOf(id);
    HEADROOM_CHECK(gradient != kNoTensor, "an output that the loss does not depend on");
    return gradient;
  }
  TensorId NewGradient(TensorId id);
  TensorId ViewGradient(TensorId id);
  Slot WeightGradient(TensorId weight);
  bool SumWhereWritten(TensorId dy, const Slot& bias);
  void Append(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
              OpAttributes attributes, std::vector<TensorId> scratch = {});

  // Appends, by `emit(out, accumulate)`, an op that yields a gradient of `id`. One that another
  // tensor has as well is not changed: the sum goes to a tensor of its own.
  template <typename Emit>
  void Contribute(TensorId id, const Emit& emit) {
    const TensorId existing = GradientOf(id);
    if (existing == kNoTensor) {
      const TensorId fresh = NewGradient(id);
      emit(fresh, false);
      return;
    }
    if (!shared_[static_cast<uint32_t>(existing)]) {
      emit(existing, true);
      return;
    }
    gradients_.erase(static_cast<uint32_t>(id));
    const TensorId part = NewGradient(id);
    emit(part, false);
    gradients_.erase(static_cast<uint32_t>(id));
    const TensorId sum = NewGradient(id);
    Append(OpKind::kAdd, {existing, part}, {sum}, {});
  }

  Graph& graph_;
  const BackwardOptions options_;
  Recomputer recomputer_;
  std::unordered_map<uint32_t, TensorId> gradients_;  // of activations, by tensor
  std::unordered_map<uint32_t, bool> shared_;         // gradients of two tensors
  std::unordered_map<uint32_t, size_t> parameter_of_;
  std::vector<bool> contributed_;  // by parameter
};

TensorId Backward::NewGradient(TensorId id) {
  const Tensor& of = graph_.tensor(id);
  HEADROOM_CHECK(!of.base, "a view's gradient is a view");
  Tensor gradient{.name = "d" + of.name,
                  .module = of.module,
                  .dtype = of.dtype,
                  .shape = of.shape,
                  .role = Role::kTemporary,
                  .kind = of.kind};
  const TensorId result = graph_.Add(std::move(gradient));
  gradients_[static_cast<uint32_t>(id)] = result;
  return result;
}

// The same part of its tensor's gradient.
TensorId Backward::ViewGradient(TensorId id) {
  if (const TensorId known = GradientOf(id); known != kNoTensor) return known;
  const Tensor of = graph_.tensor(id);
  if (!of.base) return NewGradient(id);
  TensorId root = GradientOf(*of.base);
  if (root == kNoTensor) root = NewGradient(*of.base);
  const TensorId view =
      graph_.AddView(root, {.name = "d" + of.name, .shape = of.shape, .row_stride = of.row_stride},
                     of.base_offset);
  gradients_[static_cast<uint32_t>(id)] = view;
  return view;
}

Backward::Slot Backward::WeightGradient(TensorId weight) {
  const auto found = parameter_of_.find(static_cast<uint32_t>(weight));
  if (weight == kNoTensor || found == parameter_of_.end()) return {};
  Parameter& parameter = graph_.parameters()[found->second];
  if (parameter.gradient == kNoTensor) {
    const Tensor& of = graph_.tensor(weight);
    parameter.gradient =
        graph_.Add({.name = of.name,
                    .module = of.module,
                    .dtype = options_.weight_gradients,
                    .shape = of.shape,
                    .role = options_.accumulates ? Role::kGradient : Role::kStepGradient});
  }
  const bool accumulate = contributed_[found->second];
  contributed_[found->second] = true;
  return {parameter.gradient, accumulate};
}

// Whether the op that writes dy, if it is one op, gives the bias's gradient, too.
bool Backward::SumWhereWritten(TensorId dy, const Slot& bias) {
  if (bias.tensor == kNoTensor || bias.accumulate) return false;
  const auto writes = [&](TensorId output) {
    return output != kNoTensor && graph_.Root(output) == graph_.Root(dy);
  };
  for (size_t i = graph_.ops().size(); i-- > 0 && graph_.ops()[i].phase == Phase::kBackward;) {
    Op& op = graph_.mutable_ops()[i];
    if (std::none_of(op.outputs.begin(), op.outputs.end(), writes)) continue;
    const size_t position = SumsOutput(op.kind);
    if (position == 0 || op.outputs[0] != dy || op.attributes.accumulate) return false;
    op.outputs.resize(position + 1, kNoTensor);
    op.outputs[position] = bias.tensor;
    return true;
  }
  return false;
}

void Backward::Append(OpKind kind, std::vector<TensorId> inputs, std::vector<TensorId> outputs,
                      OpAttributes attributes, std::vector<TensorId> scratch) {
  graph_.Append({.kind = kind,
                 .phase = Phase::kBackward,
                 .inputs = std::move(inputs),
                 .outputs = std::move(outputs),
                 .scratch = std::move(scratch),
                 .attributes = attributes});
}

void Backward::Differentiate(size_t position, const Op& op) {
  switch (op.kind) {
    case OpKind::kEmbedding:
      return Embedding(op);
    case OpKind::kLinear:
      return Linear(op);
    case OpKind::kNorm:
      return Norm(op);
    case OpKind::kAttention:
      return Attention(op);
    case OpKind::kRope:
      return Rope(op);
    case OpKind::kActivation:
      return Elementwise(op, OpKind::kActivationBackward, true);
    case OpKind::kGlu:
      return Elementwise(op, OpKind::kGluBackward, true);
    case OpKind::kDropout:
      return Elementwise(op, OpKind::kDropoutBackward, false);
    case OpKind::kAdd:
      return Add(op);
    case OpKind::kSelectRows:
      return SelectRows(op);
    case OpKind::kCrossEntropy:
      // Its logits have become their own gradient.
      gradients_[static_cast<uint32_t>(op.inputs[0])] = op.inputs[0];
      return;
    case OpKind::kLinearLoss:
      return LinearLoss(position, op);
    default:
      HEADROOM_CHECK(false, "an op that has no gradient");
  }
}

void Backward::Embedding(const Op& op) {
  const TensorId dy = Owed(op.outputs[0]);
  const TensorId ids = op.inputs[0];
  const TensorId type_ids = At(op.inputs, 4);
  // An op adds to all its tables or to none, and a tied one may have been written already.
  const auto append = [&](const std::array<Slot, 3>& slots, bool accumulate) {
    std::vector<TensorId> outputs;
    bool any = false;
    for (const Slot& slot : slots) {
      const bool wanted = slot.tensor != kNoTensor && slot.accumulate == accumulate;
      outputs.push_back(wanted ? slot.tensor : kNoTensor);
      any = any || wanted;
    }
    if (!any) return;
    OpAttributes attributes = op.attributes;
    attributes.accumulate = accumulate;
    const TensorId order = graph_.Add({.name = "order",
                                       .module = graph_.tensor(dy).module,
                                       .dtype = DType::kInt32,
                                       .shape = Shape{graph_.tensor(dy).shape[0]},
                                       .role = Role::kTemporary,
                                       .kind = Kind::kEmbedding});
    Append(OpKind::kEmbeddingBackward, {dy, ids, type_ids}, std::move(outputs), attributes,
           {order});
  };
  const std::array<Slot, 3> slots = {WeightGradient(op.inputs[1]), WeightGradient(At(op.inputs, 2)),
                                     WeightGradient(At(op.inputs, 3))};
  append(slots, false);
  append(slots, true);
}

void Backward::Linear(const Op& op) {
  const TensorId dy = Owed(op.outputs[0]);
  const TensorId x = op.inputs[0];
  const Slot weight = WeightGradient(op.inputs[1]);
  Slot bias = WeightGradient(At(op.inputs, 2));
  HEADROOM_CHECK(bias.tensor == kNoTensor || bias.accumulate == weight.accumulate,
                 "a bias that is tied otherwise than its weight");
  if (SumWhereWritten(dy, bias)) bias.tensor = kNoTensor;
  OpAttributes attributes = op.attributes;
  attributes.accumulate = weight.accumulate;
  Append(OpKind::kLinearBackwardWeight, {dy, recomputer_.Saved(x)}, {weight.tensor, bias.tensor},
         attributes);
  if (!IsActivation(x)) return;
  Contribute(x, [&](TensorId dx, bool accumulate) {
    attributes.accumulate = accumulate;
    Append(OpKind::kLinearBackwardInput, {dy, op.inputs[1]}, {dx}, attributes);
  });
}

void Backward::Norm(const Op& op) {
  const TensorId x = op.inputs[0];
  const TensorId residual = op.inputs[1];
  const bool fused = residual != kNoTensor;
  const TensorId normalised = fused ? op.outputs[1] : x;
  const TensorId dy = Owed(op.outputs[0]);
  const TensorId dsum = GradientOf(normalised);
  const Slot gamma = WeightGradient(op.inputs[2]);
  const Slot beta = WeightGradient(At(op.inputs, 3));
  HEADROOM_CHECK(!gamma.accumulate && !beta.accumulate, "a norm with tied weights");
  // What else reads its input is owed already, and is part of this op's result.
  gradients_.erase(static_cast<uint32_t>(normalised));
  const bool two = fused && op.attributes.dropout > 0;
  const TensorId dx = NewGradient(x);
  TensorId dresidual = kNoTensor;
  const TensorId owed = fused ? GradientOf(residual) : kNoTensor;
  if (two) {
    gradients_.erase(static_cast<uint32_t>(residual));
    dresidual = NewGradient(residual);
  }
  Append(OpKind::kNormBackward,
         {dy, recomputer_.Saved(normalised), op.inputs[2], recomputer_.Saved(op.outputs[2]),
          recomputer_.Saved(op.outputs[3]), dsum},
         {dx, dresidual, gamma.tensor, beta.tensor}, op.attributes);
  if (!fused) return;
  if (!two) {
    dresidual = dx;
    shared_[static_cast<uint32_t>(dx)] = true;
    gradients_[static_cast<uint32_t>(residual)] = dx;
  }
  if (owed == kNoTensor) return;
  gradients_.erase(static_cast<uint32_t>(residual));
  const TensorId sum = NewGradient(residual);
  Append(OpKind::kAdd, {owed, dresidual}, {sum}, {});
}

void Backward::Attention(const Op& op) {
  const TensorId dout = Owed(op.outputs[0]);
  std::vector<TensorId> outputs;
  for (size_t i = 0; i < 3; ++i) {
    HEADROOM_CHECK(GradientOf(op.inputs[i]) == kNoTensor, "queries or keys of two attentions");
    outputs.push_back(ViewGradient(op.inputs[i]));
  }
  const auto saved = [&](TensorId id) { return recomputer_.Saved(id); };
  Append(OpKind::kAttentionBackward,
         {dout, saved(op.inputs[0]), saved(op.inputs[1]), saved(op.inputs[2]), saved(op.outputs[0]),
          saved(op.outputs[1]), At(op.inputs, 3), At(op.inputs, 4)},
         std::move(outputs), op.attributes);
}

void Backward::Rope(const Op& op) {
  const TensorId gradient = ViewGradient(op.inputs[0]);
  Append(OpKind::kRopeBackward, {gradient, op.inputs[1], op.inputs[2]}, {gradient}, op.attributes);
}

void Backward::Elementwise(const Op& op, OpKind backward, bool reads_input) {
  const TensorId dy = Owed(op.outputs[0]);
  const TensorId x = op.inputs[0];
  std::vector<TensorId> inputs = {dy};
  if (reads_input) inputs.push_back(recomputer_.Saved(x));
  Contribute(x, [&](TensorId dx, bool accumulate) {
    OpAttributes attributes = op.attributes;
    attributes.accumulate = accumulate;
    Append(backward, inputs, {dx}, attributes);
  });
}

void Backward::Add(const Op& op) {
  const TensorId dy = Owed(op.outputs[0]);
  for (size_t i = 0; i < 2; ++i) {
    const TensorId x = op.inputs[i];
    if (!IsActivation(x)) continue;
    const TensorId owed = GradientOf(x);
    if (owed == kNoTensor) {
      gradients_[static_cast<uint32_t>(x)] = dy;
      shared_[static_cast<uint32_t>(dy)] = true;
      continue;
    }
    gradients_.erase(static_cast<uint32_t>(x));
    const TensorId sum = NewGradient(x);
    Append(OpKind::kAdd, {owed, dy}, {sum}, {});
  }
}

void Backward::SelectRows(const Op& op) {
  const TensorId dy = Owed(op.outputs[0]);
  Contribute(op.inputs[0], [&](TensorId dx, bool accumulate) {
    OpAttributes attributes = op.attributes;
    attributes.accumulate = accumulate;
    Append(OpKind::kSelectRowsBackward, {dy, At(op.inputs, 1)}, {dx}, attributes);
  });
}

// Its gradients are made where its logits are: in the forward pass.
void Backward::LinearLoss(size_t position, const Op& op) {
  const TensorId x = op.inputs[0];
  const TensorId dx = NewGradient(x);
  const Slot weight = WeightGradient(op.inputs[1]);
  const Slot bias = WeightGradient(At(op.inputs, 2));
  HEADROOM_CHECK(!weight.accumulate && !bias.accumulate,
                 "a head's weight that is tied to later ops");
  graph_.mutable_ops()[position].outputs = {op.outputs[0], dx, weight.tensor, bias.tensor};
}

}  // namespace

std::string_view Name(Recompute recompute) {
  return kRecomputeNames[static_cast<size_t>(recompute)];
}

std::optional<Recompute> ParseRecompute(std::string_view name) {
  for (size_t i = 0; i < kRecomputeNames.size(); ++i) {
    if (kRecomputeNames[i] == name) return static_cast<Recompute>(i);
  }
  return std::nullopt;
}

void AppendBackward(Graph& graph, const BackwardOptions& options) {
  Backward(graph, options).Run();
  RemoveDeadOps(graph);
}

}  // namespace headroom::graph
