// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0: models/{mixtral,qwen2_moe,qwen3_moe}/modeling_*.py, and
// grouped_mm_experts_forward and batched_mm_experts_forward of integrations/moe.py.
#include "predict/models/decoder_experts.h"

#include "predict/ops_moe.h"

namespace headroom::predict {

SparseMoeBlock::SparseMoeBlock(const Scope& scope, const DecoderLayout& layout,
                               const DecoderOptions& options, Activation activation)
    : id_(scope.id()),
      gate_id_((scope / "gate").id()),
      experts_id_((scope / "experts").id()),
      gate_((scope / "gate").Get("weight")),
      gate_up_proj_((scope / "experts").Get("gate_up_proj")),
      down_proj_((scope / "experts").Get("down_proj")),
      count_(layout.expert_count),
      per_token_(layout.experts_per_token),
      normalises_(options.normalises_experts),
      casts_to_float_(options.casts_router_to_float),
      activation_(activation) {
  if (layout.experts != DecoderLayout::Experts::kQwen2) return;
  shared_expert_.emplace(scope / "shared_expert", layout, options, activation);
  shared_expert_gate_.emplace(scope / "shared_expert_gate");
}

SparseMoeBlock::Routing SparseMoeBlock::Route(const Tensor& hidden) const {
  const InModule in(hidden.runtime(), gate_id_);
  Tensor logits = LinearOp(Reshape(hidden, {-1, hidden.size(-1)}), gate_, Tensor());
  Tensor probabilities;
  if (casts_to_float_) {
    const Tensor in_float = To(logits, DType::kFloat32);
    probabilities = Softmax(in_float);
  } else {
    probabilities = Softmax(logits, DType::kFloat32);
  }
  auto [values, experts] = TopK(probabilities, per_token_);
  if (normalises_) {
    const int last[] = {-1};
    const Tensor sum = Sum(values, last, true);
    values = DivInPlace(values, sum);
  }
  if (!casts_to_float_) values = To(values, logits.dtype());
  return {logits, values, experts};
}

// _default_apply_gate
Tensor SparseMoeBlock::ApplyGate(const Tensor& gate_up) const {
  const std::vector<Tensor> parts = Split(gate_up, gate_up.size(-1) / 2, -1);
  const Tensor gate = activation_(parts[0]);
  return Mul(gate, parts[1]);
}

Tensor SparseMoeBlock::RunExperts(const Tensor& hidden, const Routing& routing) const {
  Runtime& runtime = hidden.runtime();
  const InModule in(runtime, experts_id_);
  const Tensor sample_weights = Reshape(routing.weights, {-1});
  const Tensor expert_ids = Reshape(routing.experts, {-1});
  const auto [sorted_ids, permutation] = SortIndices(expert_ids);
  Tensor selected;
  {
    const Tensor tokens =
        Elementwise("aten::floor_divide", std::span(&permutation, 1), DType::kInt64);
    selected = GatherRows(hidden, tokens);
  }
  const Tensor sorted_weights = GatherRows(sample_weights, permutation);
  const Tensor histogram_input = ToCopy(sorted_ids, DType::kInt32);
  const Tensor counts = Zeros(runtime, {count_}, DType::kInt32);
  const Tensor offsets = CountOffsets(counts);
  const Tensor sentinels = Unsqueeze(CompareScalar(sorted_ids), -1);
  selected = MaskedFillInPlace(selected, sentinels);

  const auto project = [&](const Tensor& x, const Tensor& weight) {
    const Tensor cast = To(x, weight.dtype());
    return GroupedMm(cast, weight, offsets);
  };
  Tensor projected = project(selected, gate_up_proj_);
  projected = MaskedFill(projected, sentinels);
  projected = ApplyGate(projected);
  projected = project(projected, down_proj_);
  projected = MaskedFill(projected, sentinels);

  Tensor weighted = Mul(projected, Unsqueeze(sorted_weights, -1));
  const Tensor inverse = EmptyLike(permutation);
  { const Tensor range = Arange(runtime, permutation.numel()); }
  weighted = GatherRows(weighted, inverse);
  const Tensor by_token = View(weighted, {hidden.size(0), per_token_, hidden.size(1)});
  const int over_experts[] = {1};
  const Tensor summed = Sum(AutocastToFloat(by_token), over_experts, false);
  return To(summed, hidden.dtype());
}

// batched_mm_experts_forward: every token gets its own copy of the weights of the experts it chose;
// those of the first product live until the copies for the second are there.
Tensor SparseMoeBlock::RunChosenExperts(const Tensor& hidden, const Routing& routing) const {
  const InModule in(hidden.runtime(), experts_id_);
  const Tensor selected = RepeatInterleave(hidden, per_token_, 0);
  const Tensor sample_weights = Reshape(routing.weights, {-1});
  const Tensor expert_ids =
      Elementwise("aten::clamp", std::span(&routing.experts, 1), routing.experts.dtype());
  const Tensor flat_ids = Reshape(expert_ids, {-1});
  const auto copies = [&](const Tensor& weight) {
    const Scoped component(hidden.runtime().component, Component::kTemporaries);
    return GatherRows(weight, flat_ids);
  };
  Tensor weights = copies(gate_up_proj_);
  Tensor projected = Squeeze(Bmm(weights, Unsqueeze(selected, -1)), -1);
  projected = ApplyGate(projected);
  weights = copies(down_proj_);
  projected = Squeeze(Bmm(weights, Unsqueeze(projected, -1)), -1);
  const Tensor weighted = Mul(projected, Unsqueeze(sample_weights, -1));
  const Tensor by_token = View(weighted, {hidden.size(0), per_token_, hidden.size(1)});
  const int over_experts[] = {1};
  const Tensor summed = Sum(by_token, over_experts, false);
  return To(summed, hidden.dtype());
}

Tensor SparseMoeBlock::operator()(const Tensor& given) const {
  const InModule in(given.runtime(), id_);
  const Scoped kind(given.runtime().kind, Kind::kMlp);
  const Tensor hidden = View(given, {-1, given.size(-1)});
  Tensor shared;
  if (shared_expert_) shared = (*shared_expert_)(hidden);
  const Routing routing = Route(hidden);
  // generate switches to the batched form for decoding (_optimize_model_for_decode), whose steps
  // have one position.
  const bool decodes = !given.runtime().training && given.size(1) == 1;
  Tensor output = decodes ? RunChosenExperts(hidden, routing) : RunExperts(hidden, routing);
  if (shared_expert_) {
    {
      Tensor share = (*shared_expert_gate_)(hidden);
      share = Sigmoid(share);
      shared = Mul(share, shared);
    }
    output = Add(output, shared);
  }
  return Reshape(output, given.shape());
}

}  // namespace headroom::predict
