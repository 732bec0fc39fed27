// SPDX-License-Identifier: Apache-2.0
//
// The order of frees follows torch/csrc/autograd/engine.cpp, input_buffer.cpp and
// functions/accumulate_grad.{h,cpp}, PyTorch 2.11.0.
#include "predict/autograd.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "base/check.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

constexpr uint64_t kRunsFirst = std::numeric_limits<uint64_t>::max();

// The gradient edge of a tensor: its grad_fn, or the AccumulateGrad of a leaf.
Node::Edge GradientEdge(const Tensor& tensor) {
  if (!tensor.requires_grad()) return {};
  TensorImpl* impl = tensor.impl();
  if (impl->grad_fn) return {impl->grad_fn, impl->output_number};
  if (impl->accumulator != nullptr) return {Ref<Node>(impl->accumulator), 0};
  Ref<Node> node = MakeRef<Node>();
  node->name = "AccumulateGrad";
  node->sequence = kRunsFirst;
  node->leaf = tensor;
  node->inputs.push_back({tensor.shape(), tensor.dtype()});
  node->module = tensor.runtime().module;
  impl->accumulator = node.get();
  return {node, 0};
}

// utils::obeys_layout_contract: a gradient can be kept as it is only if its strides are those of
// the (dense) parameter.
bool ObeysLayoutContract(const Tensor& grad, const Tensor& leaf) {
  if (!leaf.is_non_overlapping_and_dense()) return grad.is_contiguous();
  for (int dim = 0; dim < leaf.rank(); ++dim) {
    if (leaf.size(dim) > 1 && grad.strides()[dim] != leaf.strides()[dim]) return false;
  }
  return true;
}

// AccumulateGrad::apply: keeps the gradient itself when nobody else holds it, else a copy.
void AccumulateGrad(const Tensor& leaf, Tensor grad) {
  if (leaf.grad().defined()) {  // added in place
    ReportMap("aten::add_", {leaf.grad(), grad}, {leaf.grad()});
    return;
  }
  if (grad.ref()->use_count() <= 1 && ObeysLayoutContract(grad, leaf)) {
    leaf.grad() = Detach(grad);
  } else {
    leaf.grad() = CloneLike(grad, leaf);
  }
  leaf.grad().impl()->storage->Reclassify(Component::kGradients, Kind::kOther);
}

// InputBuffer: the gradients that have arrived for one node.
class InputBuffer {
 public:
  void Resize(size_t inputs) { grads_.resize(inputs); }
  void Add(int32_t input, Tensor grad) {
    if (!grad.defined()) return;
    Tensor& held = grads_[static_cast<size_t>(input)];
    if (!held.defined()) {
      held = std::move(grad);
    } else if (!CanAccumulateInPlace(held)) {
      held = AddOutOfPlace(held, grad);
    } else {
      ReportMap("aten::add_", {held, grad}, {held});
    }
  }
  Grads Take() { return std::move(grads_); }

 private:
  static bool CanAccumulateInPlace(const Tensor& held) {
    return held.is_non_overlapping_and_dense() && held.ref()->use_count() == 1 &&
           held.impl()->storage->use_count() == 1;
  }

  Grads grads_;
};

// A node whose gradients have all arrived.
struct Ready {
  uint64_t sequence;
  size_t waiting;
};

struct LaterNodeFirst {
  bool operator()(const Ready& a, const Ready& b) const { return a.sequence < b.sequence; }
};

// GraphTask: one call of Backward.
class Engine {
 public:
  explicit Engine(Runtime& runtime) : runtime_(runtime), id_(runtime.NextGraphTask()) {}

  void Run(std::span<const Tensor> roots, std::span<const Tensor> gradients) {
    // Several roots share a GraphRoot node in front of them; its outputs are distributed in order.
    PoolVector<Node::Edge> edges;
    for (const Tensor& root : roots) edges.push_back(GradientEdge(root));
    CountDependencies(edges);
    Grads outputs(gradients.begin(), gradients.end());
    Distribute(edges, outputs);
    while (!ready_.empty()) {
      const size_t index = ready_.top().waiting;
      ready_.pop();
      const Ref<Node> node = std::move(waiting_[index].node);
      InputBuffer buffer = std::move(waiting_[index].buffer);
      Evaluate(*node, buffer);
    }
  }

 private:
  // A node that gradients are on their way to.
  struct Waiting {
    Node* key;
    Node::GraphTaskSlot outer;  // what the node's slot held before
    int dependencies = 0;
    Ref<Node> node;  // once nothing is missing: what was to hold the node may go before it runs
    InputBuffer buffer;
  };

  void CountDependencies(const PoolVector<Node::Edge>& roots) {
    std::vector<Node*> stack;
    const auto visit = [&](const PoolVector<Node::Edge>& edges) {
      for (const Node::Edge& edge : edges) {
        if (!edge.node) continue;
        Node& node = *edge.node;
        if (node.slot.task != id_) {
          waiting_.push_back({&node, node.slot, 0, {}, InputBuffer()});
          node.slot = {id_, waiting_.size() - 1};
          stack.push_back(&node);
        }
        ++waiting_[node.slot.index].dependencies;
      }
    };
    visit(roots);
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      visit(node->edges);
    }
  }

  // A Backward within this one leaves the slots of nodes that it did not reach to itself.
  size_t IndexOf(const Node& node) const {
    if (node.slot.task == id_) return node.slot.index;
    const auto waiting = std::ranges::find(waiting_, &node, &Waiting::key);
    HEADROOM_CHECK(waiting != waiting_.end(), "a gradient for a node that is not of the graph");
    return static_cast<size_t>(waiting - waiting_.begin());
  }

  void Evaluate(Node& node, InputBuffer& buffer) {
    if (node.leaf.defined()) {
      Grads grads = buffer.Take();
      if (grads[0].defined()) AccumulateGrad(node.leaf, std::move(grads[0]));
      return;
    }
    Grads outputs = Call(node, buffer);
    node.backward.Reset();  // release_variables
    Distribute(node.edges, outputs);
  }

  // call_function: the gradients that came in live until the outputs are validated.
  Grads Call(Node& node, InputBuffer& buffer) {
    const Scoped module(runtime_.module, node.module);
    const Scoped kind(runtime_.kind, node.kind);
    if (runtime_.run_observer != nullptr) runtime_.run_observer->BeforeNode(node.module);
    runtime_.set_op(runtime_.InternOp(node.name));
    HEADROOM_CHECK(node.backward, "a graph is walked backward twice");
    Grads inputs = buffer.Take();
    // Generated nodes pass "no gradient" on without computing anything (any_variable_defined).
    const bool any = std::any_of(inputs.begin(), inputs.end(),
                                 [](const Tensor& grad) { return grad.defined(); });
    Grads outputs = any ? node.backward(inputs) : Grads(node.edges.size());
    HEADROOM_CHECK(outputs.size() <= node.edges.size(), node.name);
    for (size_t i = 0; i < outputs.size(); ++i) Validate(node.edges[i], outputs[i]);
    return outputs;
  }

  // validate_outputs: sums broadcast dimensions away and casts to the dtype of the forward value.
  static void Validate(const Node::Edge& edge, Tensor& grad) {
    if (!edge.node || !grad.defined()) return;
    const Node::InputMetadata& wanted = edge.node->inputs[static_cast<size_t>(edge.input)];
    if (!(grad.shape() == wanted.shape)) grad = SumTo(grad, wanted.shape);
    if (grad.dtype() != wanted.dtype) grad = ToCopy(grad, wanted.dtype);
  }

  void Distribute(const PoolVector<Node::Edge>& edges, Grads& outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Node::Edge& edge = edges[i];
      if (!edge.node) continue;
      const size_t index = IndexOf(*edge.node);
      Waiting& waiting = waiting_[index];
      waiting.buffer.Resize(edge.node->inputs.size());
      waiting.buffer.Add(edge.input, std::move(outputs[i]));
      if (--waiting.dependencies > 0) continue;
      waiting.node = edge.node;
      waiting.key = nullptr;
      edge.node->slot = waiting.outer;
      ready_.push({edge.node->sequence, index});
    }
  }

  Runtime& runtime_;
  const uint64_t id_;
  std::vector<Waiting> waiting_;
  std::priority_queue<Ready, std::vector<Ready>, LaterNodeFirst> ready_;
};

}  // namespace

SavedTensor::SavedTensor(const Tensor& tensor) {
  if (SavedTensorHooks* hooks = tensor.runtime().hooks; hooks != nullptr) {
    unpack_ = hooks->Pack(tensor);
  } else {
    tensor_ = tensor;
  }
}

Node::~Node() {
  if (leaf.defined()) leaf.impl()->accumulator = nullptr;
  // Chains of nodes are as long as the model is deep: take them apart here, not by recursion.
  PoolVector<Edge> pending = std::move(edges);
  while (!pending.empty()) {
    Edge edge = std::move(pending.back());
    pending.pop_back();
    if (edge.node && edge.node->use_count() == 1) {
      for (Edge& next : edge.node->edges) pending.push_back(std::move(next));
      edge.node->edges.clear();
    }
  }
}

GradRecorder::GradRecorder(Runtime& runtime, const char* name, std::span<const Tensor> inputs) {
  if (!runtime.grad_enabled) return;
  bool wanted = false;
  for (const Tensor& input : inputs) wanted |= input.requires_grad();
  if (!wanted) return;
  node_ = MakeRef<Node>();
  node_->name = name;
  node_->sequence = runtime.NextSequence();
  node_->module = runtime.module;
  node_->kind = runtime.kind;
  node_->edges.reserve(inputs.size());
  for (const Tensor& input : inputs) {
    node_->edges.push_back(input.defined() ? GradientEdge(input) : Node::Edge{});
  }
}

bool GradRecorder::Needs(size_t input) const {
  return node_ && static_cast<bool>(node_->edges[input].node);
}

SavedTensor GradRecorder::Save(const Tensor& tensor) const {
  return node_ ? SavedTensor(tensor) : SavedTensor();
}

SavedTensor GradRecorder::SaveIf(bool condition, const Tensor& tensor) const {
  return condition ? Save(tensor) : SavedTensor();
}

SavedTensor GradRecorder::SaveOutput(const Tensor& output) const {
  return node_ ? SavedTensor(Detach(output)) : SavedTensor();
}

Tensor GradRecorder::Finish(Tensor output, Node::Function backward) {
  Tensor* const outputs[] = {&output};
  Finish(outputs, std::move(backward));
  return output;
}

void GradRecorder::Finish(std::span<Tensor* const> outputs, Node::Function backward) {
  if (!node_) return;
  node_->backward = std::move(backward);
  for (Tensor* output : outputs) {
    output->impl()->grad_fn = node_;
    output->impl()->output_number = static_cast<int32_t>(node_->inputs.size());
    node_->inputs.push_back({output->shape(), output->dtype()});
  }
}

void Backward(Runtime& runtime, const Tensor& root, const Tensor& gradient) {
  Backward(runtime, std::span(&root, 1), std::span(&gradient, 1));
}

void Backward(Runtime& runtime, std::span<const Tensor> roots, std::span<const Tensor> gradients) {
  const Scoped component(runtime.component, Component::kTemporaries);
  const Scoped module(runtime.module, runtime.module);
  const Scoped grad(runtime.grad_enabled, false);
  const Scoped in_backward(runtime.in_backward, true);
  const Scoped thread(runtime.thread, Thread::kBackward);
  const Scoped autocast(runtime.autocast.enabled, false);
  SavedTensorHooks* const none = nullptr;
  const Scoped hooks(runtime.hooks, none);
  Engine(runtime).Run(roots, gradients);
}

}  // namespace headroom::predict
