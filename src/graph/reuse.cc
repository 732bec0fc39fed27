// SPDX-License-Identifier: Apache-2.0
#include "graph/reuse.h"

#include <utility>
#include <vector>

#include "graph/lifetimes.h"

namespace headroom::graph {
namespace {

struct InPlace {
  size_t input;
  size_t output;
};

// What kernels may do in place: each element is read before it is written.
std::vector<InPlace> InPlacePairs(OpKind kind) {
  switch (kind) {
    case OpKind::kActivationBackward:
    case OpKind::kDropout:
    case OpKind::kDropoutBackward:
      return {{0, 0}};
    case OpKind::kAdd:
      return {{0, 0}, {1, 0}};
    case OpKind::kNormBackward:
      return {{5, 1}, {0, 0}};  // dresidual over dsum, dx over dy
    default:
      return {};
  }
}

bool IsTransient(const Tensor& tensor) {
  return tensor.role == Role::kActivation || tensor.role == Role::kTemporary;
}

class Reuse {
 public:
  explicit Reuse(Graph& graph) : graph_(graph), lifetimes_(LifetimesOf(graph)) {
    has_views_.resize(graph.tensors().size());
    for (const Tensor& tensor : graph.tensors()) {
      if (tensor.base) has_views_[Index(*tensor.base)] = true;
    }
  }

  void Run() {
    for (size_t i = 0; i < graph_.ops().size(); ++i) {
      const Op& op = graph_.ops()[i];
      if (op.attributes.accumulate) continue;
      for (const InPlace& pair : InPlacePairs(op.kind)) {
        if (pair.input >= op.inputs.size() || pair.output >= op.outputs.size()) continue;
        Try(op.inputs[pair.input], op.outputs[pair.output], static_cast<int32_t>(i));
      }
    }
  }

 private:
  void Try(TensorId input, TensorId output, int32_t op) {
    if (input == kNoTensor || output == kNoTensor) return;
    const TensorId root = graph_.Root(input);
    const Tensor& from = graph_.tensor(root);
    Tensor& to = graph_.tensor(output);
    const bool whole = IsTransient(from) && SizeOf(graph_.tensor(input)) == SizeOf(from);
    const bool free = IsTransient(to) && !to.base && !has_views_[Index(output)] && !to.kept;
    if (!whole || !free || root == output || from.kept) return;
    if (from.dtype != to.dtype || SizeOf(from) != SizeOf(to)) return;
    if (lifetimes_[Index(root)].last != op || lifetimes_[Index(output)].first != op) return;
    to.base = root;
    to.base_offset = 0;
    has_views_[Index(root)] = true;
    lifetimes_[Index(root)].last = lifetimes_[Index(output)].last;
  }

  Graph& graph_;
  std::vector<Lifetime> lifetimes_;
  std::vector<bool> has_views_;
};

}  // namespace

void ReuseInputs(Graph& graph) { Reuse(graph).Run(); }

}  // namespace headroom::graph
