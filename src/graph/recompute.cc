// SPDX-License-Identifier: Apache-2.0
#include "graph/recompute.h"

#include <algorithm>
#include <utility>

namespace headroom::graph {
namespace {

constexpr size_t kNormX = 0;
constexpr size_t kNormResidual = 1;
constexpr size_t kNormSum = 1;  // output

// What the norm normalised.
TensorId NormInput(const Op& op) {
  return op.inputs[kNormResidual] == kNoTensor ? op.inputs[kNormX] : op.outputs[kNormSum];
}

}  // namespace

Recomputer::Recomputer(Graph& graph, Recompute policy)
    : graph_(graph), policy_(policy), forward_ops_(graph.ops().size()) {
  FindUses();
}

void Recomputer::FindUses() {
  uses_.resize(graph_.tensors().size());
  const auto ops = graph_.ops();
  for (size_t i = 0; i < ops.size(); ++i) {
    for (const TensorId output : ops[i].outputs) {
      if (output == kNoTensor) continue;
      Uses& uses = uses_[Index(graph_.Root(output))];
      if (uses.producer < 0) uses.producer = static_cast<int>(i);
    }
  }
  for (const Op& op : ops) {
    for (const TensorId input : op.inputs) {
      if (input == kNoTensor) continue;
      Uses& uses = uses_[Index(graph_.Root(input))];
      if (uses.producer < 0) continue;
      const int layer = ops[static_cast<size_t>(uses.producer)].attributes.layer;
      uses.outside = uses.outside || layer != op.attributes.layer;
    }
  }
}

bool Recomputer::IsNormOutput(const Op& op, TensorId id) const {
  return op.kind == OpKind::kNorm && op.outputs[0] == id;
}

bool Recomputer::IsBesideKept(const Op& op, TensorId id) const {
  return IsNormOutput(op, id) && uses_[Index(NormInput(op))].outside;
}

// What other layers read stays alive, but not a norm's output whose input is kept as well. The
// statistics of norms do: they are small, and without them a layer's last linear would run again.
bool Recomputer::KeptAcrossLayers(TensorId id) const {
  const Uses& uses = uses_[Index(graph_.Root(id))];
  if (uses.producer < 0) return true;
  const Op& op = graph_.ops()[static_cast<size_t>(uses.producer)];
  if (op.attributes.layer < 0) return true;
  if (op.kind == OpKind::kNorm && graph_.tensor(id).full_precision) return true;
  if (!uses.outside) return false;
  return !IsBesideKept(op, id);
}

TensorId Recomputer::Again(const Op& op, TensorId id) {
  Tensor copy = graph_.tensor(id);
  const TensorId result = graph_.Add(std::move(copy));
  copies_[static_cast<uint32_t>(id)] = result;
  Op again = op;
  again.phase = Phase::kBackward;
  if (op.kind == OpKind::kNorm) {
    // The sum is there already; statistics come out the same and are not stored twice.
    again.inputs[kNormX] = Saved(NormInput(op));
    again.inputs[kNormResidual] = kNoTensor;
    again.outputs = {result, kNoTensor, kNoTensor, kNoTensor};
    again.attributes.dropout = 0;
  } else {
    again.inputs[0] = Saved(op.inputs[0]);
    again.outputs = {result};
  }
  graph_.Append(std::move(again));
  return result;
}

TensorId Recomputer::Saved(TensorId id) {
  if (id == kNoTensor || policy_ == Recompute::kNone || Index(id) >= uses_.size()) return id;
  if (const auto copy = copies_.find(static_cast<uint32_t>(id)); copy != copies_.end()) {
    return copy->second;
  }
  const Tensor& tensor = graph_.tensor(id);
  const Uses& uses = uses_[Index(graph_.Root(id))];
  if (uses.producer < 0) return id;
  const Op op = graph_.ops()[static_cast<size_t>(uses.producer)];
  if (policy_ == Recompute::kCheap) {
    const bool cheap =
        IsNormOutput(op, id) || op.kind == OpKind::kActivation || op.kind == OpKind::kGlu;
    return cheap && !tensor.base ? Again(op, id) : id;
  }
  const bool again = op.attributes.layer >= 0 && uses.outside && IsBesideKept(op, id);
  return again ? Again(op, id) : id;
}

void Recomputer::Enter(const Op& op) {
  const int layer = op.attributes.layer;
  if (policy_ != Recompute::kBlock || layer == layer_) return;
  layer_ = layer;
  if (layer >= 0) RunLayerAgain(layer);
}

TensorId Recomputer::Copy(TensorId id) {
  if (id == kNoTensor) return id;
  if (const auto copy = copies_.find(static_cast<uint32_t>(id)); copy != copies_.end()) {
    return copy->second;
  }
  Tensor tensor = graph_.tensor(id);
  if (tensor.base) tensor.base = Copy(*tensor.base);
  const TensorId copy = graph_.Add(std::move(tensor));
  copies_[static_cast<uint32_t>(id)] = copy;
  return copy;
}

TensorId Recomputer::InputOfCopy(TensorId id) {
  if (id == kNoTensor) return id;
  const TensorId root = graph_.Root(id);
  // A view of what has been copied: the same part of the copy.
  if (copies_.count(static_cast<uint32_t>(root)) != 0) return Copy(id);
  return Saved(id);
}

void Recomputer::RunLayerAgain(int layer) {
  for (size_t i = 0; i < forward_ops_; ++i) {
    const Op op = graph_.ops()[i];
    if (op.attributes.layer != layer) continue;
    Op again = op;
    again.phase = Phase::kBackward;
    for (TensorId& input : again.inputs) input = InputOfCopy(input);
    for (TensorId& output : again.outputs) {
      if (output == kNoTensor) continue;
      // Of what is kept, backward reads the original; nobody reads what is written here.
      output = KeptAcrossLayers(output) ? graph_.Add(graph_.tensor(output)) : Copy(output);
    }
    graph_.Append(std::move(again));
  }
}

void RemoveDeadOps(Graph& graph) {
  std::vector<bool> read(graph.tensors().size());
  std::vector<Op>& ops = graph.mutable_ops();
  std::vector<Op> live;
  for (size_t i = ops.size(); i-- > 0;) {
    Op& op = ops[i];
    const auto wanted = [&](TensorId id) {
      if (id == kNoTensor) return false;
      const Tensor& root = graph.tensor(graph.Root(id));
      const bool result = IsPersistent(root.role) || root.role == Role::kStepGradient;
      return read[Index(graph.Root(id))] || result || root.kept;
    };
    if (!std::any_of(op.outputs.begin(), op.outputs.end(), wanted)) continue;
    for (const TensorId input : op.inputs) {
      if (input != kNoTensor) read[Index(graph.Root(input))] = true;
    }
    live.push_back(std::move(op));
  }
  std::reverse(live.begin(), live.end());
  ops = std::move(live);
}

}  // namespace headroom::graph
