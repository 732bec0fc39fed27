// SPDX-License-Identifier: Apache-2.0
//
// DeepSpeed's runtime/zero/{stage_1_and_2,stage3}.py, followed from their documented behaviour and
// not measured; transformers 5.17.0, integrations/deepspeed.py.
#include "predict/zero.h"

#include <algorithm>
#include <map>

namespace headroom::predict {
namespace {

Tensor Fp32Partition(Runtime& runtime, int64_t numel) {
  const Scoped component(runtime.component, Component::kWeights);
  const OpScope op(runtime, "ZeRO fp32 partition");
  Tensor partition = Empty(runtime, {numel}, DType::kFloat32);
  partition.impl()->leaf_requires_grad = true;
  return partition;
}

int64_t TrainedNumel(const Weights& weights) {
  int64_t numel = 0;
  for (const Tensor& parameter : weights.parameters()) numel += parameter.numel();
  return numel;
}

// The gradients of this rank's share, converted to fp32 for the step.
void ConvertGradients(Runtime& runtime, std::vector<Tensor>& partition) {
  const Scoped component(runtime.component, Component::kGradients);
  const OpScope op(runtime, "ZeRO fp32 gradients");
  for (Tensor& flat : partition) flat.grad() = Empty(runtime, flat.shape(), DType::kFloat32);
}

}  // namespace

int64_t AutoBucketSize(const Weights& weights) {
  std::map<int64_t, int> widths;
  for (const Tensor& parameter : weights.parameters()) {
    if (parameter.rank() == 1) ++widths[parameter.size(0)];
  }
  int64_t hidden = 1;
  int most = 0;
  for (const auto& [width, count] : widths) {
    if (count >= most) {
      most = count;
      hidden = width;
    }
  }
  return hidden * hidden;
}

Zero::Zero(Runtime& runtime, const Recipe& recipe, const Weights& weights)
    : runtime_(runtime),
      weights_(weights),
      ranks_(recipe.parallel.ranks),
      keeps_share_(recipe.parallel.sharding == Sharding::kZero2),
      units_(FindShardUnits(weights.parameter_names(),
                            TiesOutputHead(weights.parameter_names(), recipe.task))),
      bucket_(AutoBucketSize(weights)) {
  share_.resize(units_.size());
  partition_ = {Fp32Partition(runtime, (TrainedNumel(weights) + ranks_ - 1) / ranks_)};
}

// Two buffers: one is reduced while the other fills (overlap_comm with contiguous_gradients).
void Zero::BeginBackward(bool) {
  running_ = units_.size() - 1;
  const Scoped component(runtime_.component, Component::kTemporaries);
  const Scoped kind(runtime_.kind, Kind::kCollective);
  const OpScope op(runtime_, "ZeRO reduce bucket");
  const DType dtype = weights_.parameters().front().dtype();
  for (int i = 0; i < 2; ++i) reduce_buffers_.push_back(Empty(runtime_, {bucket_}, dtype));
}

void Zero::BeforeNode(ModuleId module) {
  const size_t at = UnitOfModule(runtime_, units_, unit_of_module_, module);
  if (at == running_) return;
  Reduce(running_);
  running_ = at;
}

// Stage 2 keeps a rank's share of each gradient and drops the rest.
void Zero::Reduce(size_t at) {
  if (!keeps_share_) return;
  int64_t numel = 0;
  for (const size_t i : units_[at].parameters) {
    if (weights_.parameters()[i].grad().defined()) numel += weights_.parameters()[i].numel();
  }
  if (numel == 0) return;
  if (!share_[at].defined()) {
    const Scoped component(runtime_.component, Component::kGradients);
    const OpScope op(runtime_, "ZeRO gradient share");
    share_[at] =
        Empty(runtime_, {(numel + ranks_ - 1) / ranks_}, weights_.parameters().front().dtype());
  }
  for (const size_t i : units_[at].parameters) weights_.parameters()[i].grad() = Tensor();
}

void Zero::EndBackward() {
  for (size_t i = 0; i < units_.size(); ++i) Reduce(i);
  reduce_buffers_.clear();
}

void Zero::BeginStep() { ConvertGradients(runtime_, partition_); }

void Zero::EndStep() {
  for (Tensor& flat : partition_) flat.grad() = Tensor();
  for (Tensor& share : share_) share = Tensor();
  for (const Tensor& parameter : weights_.parameters()) parameter.grad() = Tensor();
}

Zero3::Zero3(Runtime& runtime, const Recipe& recipe, const Weights& weights)
    : Fsdp(runtime, recipe, weights, LayoutOf(recipe).whole_dtype), runtime_(runtime) {
  partition_ = {Fp32Partition(
      runtime, (TrainedNumel(weights) + recipe.parallel.ranks - 1) / recipe.parallel.ranks)};
}

void Zero3::BeginStep() { ConvertGradients(runtime_, partition_); }

void Zero3::EndStep() {
  for (Tensor& flat : partition_) flat.grad() = Tensor();
  for (const Tensor& shard : Fsdp::optimizer_parameters()) shard.grad() = Tensor();
}

}  // namespace headroom::predict
