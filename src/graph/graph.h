// SPDX-License-Identifier: Apache-2.0
//
// Graph: what a native run does, as one list of ops over tensors whose sizes are all known.
//
//   TensorId x = graph.Add({.name = "h0", .dtype = DType::kBFloat16, .shape = {2048, 1024}});
//   graph.Append({.kind = OpKind::kLinear, .inputs = {x, weight, bias}, .outputs = {y}});
//
// The list is the order of execution. It holds no control flow and no data, so everything else is a
// walk over it: gradient rules append to it, passes rewrite it, the planner gives each tensor its
// place in one arena, a backend executes it, and a report counts its bytes and FLOPs.
//
// A tensor is *persistent* (weights, masters, gradients, optimizer states, buffers), with one place
// for the whole run; an *input*, alive as long as the list runs; or *transient*: it lives from the
// op that first writes it to the last op that reads it. A tensor may be a *view* of another's
// bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/shape.h"
#include "graph/op.h"
#include "ledger/component.h"

namespace headroom::graph {

// What a tensor is to the training step. Its ledger component follows from it.
enum class Role : uint8_t {
  kWeight,        // what forward reads; updated by the optimizer unless a master is
  kMaster,        // the fp32 weight beside a 16-bit kWeight
  kGradient,      // of a weight, summed over the micro-steps of a step
  kStepGradient,  // of a weight where one micro-step makes the step: alive until the optimizer ends
  kOptimizer,     // a moment, or the scales of an 8-bit one
  kBuffer,        // constants such as rotary tables, and the scalars a step yields
  kInput,         // the batch
  kActivation,    // written by forward
  kTemporary,     // written by backward or by the optimizer, or scratch of one op
  kWorkspace,     // a library's scratch, alive during one op
};
bool IsPersistent(Role role);
Component ComponentOf(Role role);
std::string_view Name(Role role);

struct Tensor {
  std::string name = {};    // unique among persistent tensors of a role, and among inputs
  std::string module = {};  // "model.layers.3.mlp"
  DType dtype = DType::kFloat32;
  Shape shape = {};
  Role role = Role::kActivation;
  Kind kind = Kind::kOther;
  // Stays float32 when the graph is lowered to 16 bits: statistics, losses, rotary tables.
  bool full_precision = false;
  bool kept = false;  // alive to the end of the list, for whoever reads it then
  // A view: these bytes belong to another tensor, that is not itself a view.
  std::optional<TensorId> base = std::nullopt;
  int64_t base_offset = 0;  // elements
  // Elements from one row to the next, a row being the last dimension; 0: rows lie one behind the
  // other. The queries inside a packed [N, 3C] projection are a view with stride 3C.
  int64_t row_stride = 0;
};
// The bytes it owns; of a view, those between its first and its last element.
Bytes SizeOf(const Tensor& tensor);

enum class Phase : uint8_t { kForward, kBackward, kOptimizer };
std::string_view Name(Phase phase);

struct Op {
  OpKind kind{};
  Phase phase = Phase::kForward;
  // By position, as the table in op.h says; an optional operand that is absent is kNoTensor.
  std::vector<TensorId> inputs = {};
  std::vector<TensorId> outputs = {};
  std::vector<TensorId> scratch = {};  // alive during this op alone
  OpAttributes attributes = {};
};

// A Hugging Face parameter and where it lies inside a packed one: rows [first_row, first_row +
// shape[0]) of it.
struct ParameterPart {
  std::string name;
  Shape shape;
  int64_t first_row = 0;
};

// What the optimizer updates as one. The projections of queries, keys and values are one
// parameter, whose parts have the names that a checkpoint knows.
struct Parameter {
  TensorId weight = kNoTensor;  // what ops read
  std::vector<ParameterPart> parts = {};
  bool decays = true;      // weight_decay applies: neither a bias nor a norm's weight
  bool embedding = false;  // its optimizer states stay float32 beside 8-bit ones
  // Those the passes add:
  TensorId master = kNoTensor;
  TensorId gradient = kNoTensor;
  TensorId m = kNoTensor;
  TensorId v = kNoTensor;
  TensorId m_scales = kNoTensor;
  TensorId v_scales = kNoTensor;

  // The tensor that holds its exact value.
  TensorId truth() const { return master == kNoTensor ? weight : master; }
};

class Graph {
 public:
  TensorId Add(Tensor tensor);
  // A tensor over a part of `base`'s bytes, `offset` elements from its start. Takes over what the
  // view does not say itself: dtype, role, kind, precision. REQUIRES: it lies inside.
  TensorId AddView(TensorId base, Tensor view, int64_t offset = 0);
  void Append(Op op);
  // REQUIRES: its weight is in the graph.
  void AddParameter(Parameter parameter) { parameters_.push_back(std::move(parameter)); }

  const Tensor& tensor(TensorId id) const { return tensors_[Index(id)]; }
  Tensor& tensor(TensorId id) { return tensors_[Index(id)]; }
  std::span<const Tensor> tensors() const { return tensors_; }
  std::span<const Op> ops() const { return ops_; }
  std::vector<Op>& mutable_ops() { return ops_; }
  std::span<const Parameter> parameters() const { return parameters_; }
  std::span<Parameter> parameters() { return parameters_; }

  // The tensor whose bytes `id` lies in: itself, unless it is a view.
  TensorId Root(TensorId id) const { return tensor(id).base.value_or(id); }

  // The tensor of this role and name, or kNoTensor.
  TensorId Find(Role role, std::string_view name) const;

  // Sum over the tensors of this role, views not counted.
  Bytes Sum(Role role) const;

 private:
  std::vector<Tensor> tensors_;
  std::vector<Op> ops_;
  std::vector<Parameter> parameters_;
};

}  // namespace headroom::graph
