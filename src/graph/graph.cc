// SPDX-License-Identifier: Apache-2.0
#include "graph/graph.h"

#include <utility>

#include "base/check.h"

namespace headroom::graph {

bool IsPersistent(Role role) {
  switch (role) {
    case Role::kWeight:
    case Role::kMaster:
    case Role::kGradient:
    case Role::kOptimizer:
    case Role::kBuffer:
      return true;
    case Role::kStepGradient:
    case Role::kInput:
    case Role::kActivation:
    case Role::kTemporary:
    case Role::kWorkspace:
      return false;
  }
  return false;
}

Component ComponentOf(Role role) {
  switch (role) {
    case Role::kWeight:
    case Role::kMaster:
      return Component::kWeights;
    case Role::kGradient:
    case Role::kStepGradient:
      return Component::kGradients;
    case Role::kOptimizer:
      return Component::kOptimizer;
    case Role::kBuffer:
    case Role::kInput:
      return Component::kInputs;
    case Role::kActivation:
      return Component::kActivations;
    case Role::kTemporary:
      return Component::kTemporaries;
    case Role::kWorkspace:
      return Component::kWorkspace;
  }
  return Component::kTemporaries;
}

std::string_view Name(Role role) {
  switch (role) {
    case Role::kWeight:
      return "weight";
    case Role::kMaster:
      return "master";
    case Role::kGradient:
    case Role::kStepGradient:
      return "gradient";
    case Role::kOptimizer:
      return "optimizer";
    case Role::kBuffer:
      return "buffer";
    case Role::kInput:
      return "input";
    case Role::kActivation:
      return "activation";
    case Role::kTemporary:
      return "temporary";
    case Role::kWorkspace:
      return "workspace";
  }
  return "";
}

std::string_view Name(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kOptimizer:
      return "optimizer";
  }
  return "";
}

Bytes SizeOf(const Tensor& tensor) {
  const int64_t elements = tensor.shape.NumElements();
  if (elements == 0 || tensor.row_stride == 0) {
    return Bytes(elements * ElementSize(tensor.dtype));
  }
  const int64_t columns = tensor.shape[-1];
  const int64_t span = (elements / columns - 1) * tensor.row_stride + columns;
  return Bytes(span * ElementSize(tensor.dtype));
}

TensorId Graph::Add(Tensor tensor) {
  const auto id = static_cast<TensorId>(tensors_.size());
  tensors_.push_back(std::move(tensor));
  return id;
}

TensorId Graph::AddView(TensorId base, Tensor view, int64_t offset) {
  const Tensor& whole = tensor(base);
  view.base_offset = offset + whole.base_offset;
  view.base = Root(base);
  view.dtype = whole.dtype;
  view.role = whole.role;
  view.full_precision = whole.full_precision;
  if (view.kind == Kind::kOther) view.kind = whole.kind;
  if (view.module.empty()) view.module = whole.module;
  const Tensor& root = tensor(*view.base);
  HEADROOM_CHECK(offset >= 0 && view.base_offset * ElementSize(root.dtype) + SizeOf(view).count() <=
                                    SizeOf(root).count(),
                 "a view that does not lie inside its tensor");
  return Add(std::move(view));
}

void Graph::Append(Op op) { ops_.push_back(std::move(op)); }

TensorId Graph::Find(Role role, std::string_view name) const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].role == role && tensors_[i].name == name) return static_cast<TensorId>(i);
  }
  return kNoTensor;
}

Bytes Graph::Sum(Role role) const {
  Bytes sum;
  for (const Tensor& tensor : tensors_) {
    if (tensor.role == role && !tensor.base) sum += SizeOf(tensor);
  }
  return sum;
}

}  // namespace headroom::graph
