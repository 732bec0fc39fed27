// SPDX-License-Identifier: Apache-2.0
//
// Autograd: PyTorch's graph of backward nodes and the engine that walks it.
//
// An op that needs a gradient records a Node: what it saved, and a function from the gradients of
// its outputs to those of its inputs. Backward() runs nodes in PyTorch's order (latest first) and
// frees gradients and saved tensors at the points where PyTorch frees them:
//
//   Tensor Gelu(const Tensor& x) {
//     GradRecorder record(x.runtime(), "GeluBackward0", {x});
//     const SavedTensor saved = record.Save(x);
//     Tensor y = EmptyLike(x);
//     return record.Finish(y, [saved](Grads& grads) -> Grads { return {GeluGrad(grads[0], saved)};
//     });
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

#include "predict/object_pool.h"
#include "predict/ref.h"
#include "predict/tensor.h"

namespace headroom::predict {

class Runtime;

using Grads = PoolVector<Tensor>;

// A tensor kept for backward, or what the active hooks keep in its place.
class SavedTensor {
 public:
  SavedTensor() = default;
  explicit SavedTensor(const Tensor& tensor);

  bool defined() const { return tensor_.defined() || unpack_; }
  // The tensor. Under hooks this may recompute it, once.
  Tensor Unpack() const { return unpack_ ? unpack_() : tensor_; }

 private:
  Tensor tensor_;
  std::function<Tensor()> unpack_;
};

// What a node does when its gradients are there: any function of Grads& that returns Grads.
class BackwardFunction {
 public:
  BackwardFunction() = default;
  template <typename F>
  BackwardFunction(F function)  // NOLINT: lambdas convert
      : body_(new BodyOf<F>(std::move(function))) {}

  explicit operator bool() const { return static_cast<bool>(body_); }
  Grads operator()(Grads& grads) const { return body_->Run(grads); }
  void Reset() { body_.Reset(); }

 private:
  struct Body : RefCounted {
    virtual Grads Run(Grads& grads) = 0;
  };
  template <typename F>
  struct BodyOf final : Body {
    explicit BodyOf(F of) : function(std::move(of)) {}
    Grads Run(Grads& grads) override { return function(grads); }
    F function;
  };

  Ref<Body> body_;
};

class Node final : public RefCounted {
 public:
  using Function = BackwardFunction;
  struct Edge {
    Ref<Node> node;  // null where no gradient is wanted
    int32_t input = 0;
  };
  // What a gradient that arrives must look like; the engine casts and sums to it.
  struct InputMetadata {
    Shape shape;
    DType dtype;
  };

  // Where the Backward that runs now keeps what it knows of a node; a nested one hides the outer's.
  struct GraphTaskSlot {
    uint64_t task = 0;  // 0: none
    size_t index = 0;
  };

  ~Node() override;

  const char* name = "";
  uint64_t sequence = 0;  // UINT64_MAX for AccumulateGrad, which so runs first
  ModuleId module{};
  Kind kind = Kind::kOther;
  PoolVector<Edge> edges;
  PoolVector<InputMetadata> inputs;
  Function backward;  // holds the saved tensors; dropped once it ran
  Tensor leaf;        // of AccumulateGrad
  GraphTaskSlot slot;
};

// Records one op, if grad mode is on and one of `inputs` requires grad. Made before the op
// computes: what is saved of the inputs is saved first, as in PyTorch's generated VariableType.
class GradRecorder {
 public:
  GradRecorder(Runtime& runtime, const char* name, std::initializer_list<Tensor> inputs)
      : GradRecorder(runtime, name, std::span<const Tensor>(inputs.begin(), inputs.size())) {}
  GradRecorder(Runtime& runtime, const char* name, std::span<const Tensor> inputs);

  bool active() const { return static_cast<bool>(node_); }
  // Whether a gradient of the input at this position is wanted.
  bool Needs(size_t input) const;
  // Saves `tensor` for backward; undefined when nothing is recorded.
  SavedTensor Save(const Tensor& tensor) const;
  SavedTensor SaveIf(bool condition, const Tensor& tensor) const;
  // Saves an output of the op itself, without a cycle through its grad_fn.
  SavedTensor SaveOutput(const Tensor& output) const;

  // Connects the output(s) to the node. Without a recording, returns them unchanged.
  Tensor Finish(Tensor output, Node::Function backward);
  void Finish(std::span<Tensor* const> outputs, Node::Function backward);

 private:
  Ref<Node> node_;
};

// loss.backward(): runs the graph behind `root` with `gradient` as its gradient and accumulates
// into the leaves' grad. Nests: a node may itself call Backward (reentrant checkpointing).
void Backward(Runtime& runtime, const Tensor& root, const Tensor& gradient);
// torch.autograd.backward of several roots.
void Backward(Runtime& runtime, std::span<const Tensor> roots, std::span<const Tensor> gradients);

// at::sum_to: `grad` summed over the dimensions in which `shape` was broadcast.
Tensor SumTo(const Tensor& grad, const Shape& shape);

}  // namespace headroom::predict
