// SPDX-License-Identifier: Apache-2.0
#include "graph/optimizer.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"

namespace headroom::graph {
namespace {

constexpr int64_t kLeastQuantised = 4096;
constexpr int64_t kBlock = 256;
// Of stochastic rounding, one for each parameter; dropout counts its own from 0.
constexpr uint32_t kFirstRoundingStream = 1U << 31;

class OptimizerBuilder {
 public:
  OptimizerBuilder(Graph& graph, const OptimizerOptions& options)
      : graph_(graph), options_(options) {}

  void Run() {
    for (Parameter& parameter : graph_.parameters()) AddStates(parameter);
    const TensorId norm = graph_.Add(
        {.name = "grad_norm", .shape = Shape{2}, .role = Role::kBuffer, .full_precision = true});
    std::vector<TensorId> gradients;
    for (const Parameter& parameter : graph_.parameters()) gradients.push_back(parameter.gradient);
    graph_.Append({.kind = OpKind::kGradNorm,
                   .phase = Phase::kOptimizer,
                   .inputs = gradients,
                   .outputs = {norm}});
    if (options_.weight_decay > 0) {
      AppendUpdate(norm, true, options_.weight_decay, [](const Parameter& p) { return p.decays; });
      AppendUpdate(norm, false, 0, [](const Parameter& p) { return !p.decays; });
    } else {
      AppendUpdate(norm, false, 0, [](const Parameter&) { return true; });
    }
  }

 private:
  TensorId State(const Parameter& parameter, const std::string& suffix, DType dtype, Shape shape) {
    const Tensor& weight = graph_.tensor(parameter.weight);
    return graph_.Add({.name = weight.name + suffix,
                       .module = weight.module,
                       .dtype = dtype,
                       .shape = shape,
                       .role = Role::kOptimizer,
                       .full_precision = true});
  }

  void AddStates(Parameter& parameter) {
    const Shape shape = graph_.tensor(parameter.weight).shape;
    const int64_t elements = shape.NumElements();
    if (options_.kind == OptimizerKind::kSgd) {
      if (options_.momentum > 0) {
        parameter.m = State(parameter, ".momentum_buffer", DType::kFloat32, shape);
      }
      return;
    }
    const bool quantised =
        options_.eight_bit && elements >= kLeastQuantised && !parameter.embedding;
    const DType dtype = quantised ? DType::kUInt8 : DType::kFloat32;
    parameter.m = State(parameter, ".exp_avg", dtype, shape);
    parameter.v = State(parameter, ".exp_avg_sq", dtype, shape);
    if (!quantised) return;
    const Shape blocks{(elements + kBlock - 1) / kBlock};
    parameter.m_scales = State(parameter, ".exp_avg_absmax", DType::kFloat32, blocks);
    parameter.v_scales = State(parameter, ".exp_avg_sq_absmax", DType::kFloat32, blocks);
  }

  template <typename Wanted>
  void AppendUpdate(TensorId norm, bool decays, float weight_decay, const Wanted& wanted) {
    Op op{.kind = OpKind::kUpdate, .phase = Phase::kOptimizer, .inputs = {norm}};
    op.attributes.optimizer = options_.kind;
    op.attributes.momentum = options_.momentum;
    op.attributes.weight_decay = decays ? weight_decay : 0;
    op.attributes.stream = rounding_stream_;
    for (const Parameter& parameter : graph_.parameters()) {
      if (!wanted(parameter)) continue;
      const bool copies = parameter.master != kNoTensor;
      ++rounding_stream_;
      if (options_.stochastic_rounding && !copies &&
          graph_.tensor(parameter.weight).dtype == DType::kBFloat16) {
        op.attributes.stochastic_rounding = true;
      }
      op.inputs.push_back(parameter.gradient);
      for (const TensorId output :
           {parameter.truth(), parameter.m, parameter.v, copies ? parameter.weight : kNoTensor,
            parameter.m_scales, parameter.v_scales}) {
        op.outputs.push_back(output);
      }
    }
    if (op.inputs.size() > 1) graph_.Append(std::move(op));
  }

  Graph& graph_;
  const OptimizerOptions options_;
  uint32_t rounding_stream_ = kFirstRoundingStream;
};

}  // namespace

std::string_view OptimName(const OptimizerOptions& options) {
  switch (options.kind) {
    case OptimizerKind::kAdamW:
      return options.eight_bit ? "adamw_bnb_8bit" : "adamw_torch";
    case OptimizerKind::kAdam:
      return "adam";
    case OptimizerKind::kSgd:
      return "sgd";
  }
  return "";
}

void AppendOptimizer(Graph& graph, const OptimizerOptions& options) {
  OptimizerBuilder(graph, options).Run();
}

}  // namespace headroom::graph
