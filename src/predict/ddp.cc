// SPDX-License-Identifier: Apache-2.0
//
// torch/nn/parallel/distributed.py and torch/csrc/distributed/c10d/reducer.cpp, PyTorch 2.11.0;
// transformers 5.17.0 trainer.py, _build_accelerator_args.
#include "predict/ddp.h"

#include <algorithm>
#include <limits>

#include "predict/autograd.h"
#include "predict/ddp_buckets.h"
#include "predict/ops.h"

namespace headroom::predict {
namespace {

constexpr int64_t kDefaultBucketCapMb = 25;      // DistributedDataParallel.__init__
constexpr Bytes kFirstBucket = MiB(1);           // dist._DEFAULT_FIRST_BUCKET_BYTES
constexpr int64_t kBroadcastBucket = 250 << 20;  // broadcast_bucket_size

// _sync_module_states: _broadcast_coalesced flattens the tensors of a type, 250 MiB at a time, and
// copies them back.
void BroadcastCoalesced(Runtime& runtime, const std::vector<Tensor>& tensors) {
  const Scoped component(runtime.component, Component::kTemporaries);
  const Scoped kind(runtime.kind, Kind::kCollective);
  const OpScope op(runtime, "broadcast_coalesced");
  Tensor in_flight[2];  // kMaxInFlight
  const auto broadcast = [&](int64_t bytes) {
    in_flight[0] = std::move(in_flight[1]);
    in_flight[1] = Empty(runtime, {bytes}, DType::kInt8);
  };
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) {
    bytes += tensor.bytes().count();
    if (bytes < kBroadcastBucket) continue;
    broadcast(bytes);
    bytes = 0;
  }
  if (bytes > 0) broadcast(bytes);
}

}  // namespace

Ddp::Ddp(Runtime& runtime, const Recipe& recipe, const Weights& weights)
    : runtime_(runtime), weights_(weights) {
  find_unused_ =
      recipe.parallel.ddp_find_unused_parameters.value_or(!recipe.gradient_checkpointing);
  const std::optional<int64_t> cap = recipe.parallel.ddp_bucket_cap_mb;
  cap_ = MiB(cap.value_or(kDefaultBucketCapMb));
  first_cap_ = cap ? cap_ : kFirstBucket;
  BroadcastCoalesced(runtime, weights.parameters());
  // Until a backward has shown the order, gradients that are all waited for make one bucket.
  if (find_unused_) {
    MakeBuckets({first_cap_, cap_}, true);
  } else {
    MakeBuckets({Bytes(std::numeric_limits<int64_t>::max())}, true);
  }
  if (find_unused_) {
    const Scoped component(runtime_.component, Component::kTemporaries);
    const auto count = static_cast<int64_t>(weights.parameters().size());
    used_map_ = Empty(runtime_, {count}, DType::kInt32);
  }
}

// Reducer::initialize_buckets.
void Ddp::MakeBuckets(std::vector<Bytes> limits, bool reversed) {
  const Scoped component(runtime_.component, Component::kGradients);
  const Scoped kind(runtime_.kind, Kind::kCollective);
  const OpScope op(runtime_, "DDP bucket");
  std::vector<Tensor> trained;
  for (const Tensor& parameter : weights_.parameters()) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  // A rebuild follows the order in which gradients came, which is about that of the parameters,
  // backwards.
  if (!reversed) std::reverse(trained.begin(), trained.end());
  std::vector<DdpGradient> gradients;
  for (const Tensor& parameter : trained) {
    gradients.push_back({parameter.bytes(), parameter.dtype()});
  }
  std::vector<std::vector<size_t>> buckets = AssignDdpBuckets(gradients, limits);
  if (reversed) std::reverse(buckets.begin(), buckets.end());
  buckets_.clear();
  for (const std::vector<size_t>& bucket : buckets) {
    int64_t numel = 0;
    for (const size_t i : bucket) numel += trained[i].numel();
    buckets_.push_back(Empty(runtime_, {numel}, trained[bucket.front()].dtype()));
  }
}

// DistributedDataParallel._pre_forward: buckets follow the order of the first backward's gradients.
void Ddp::BeginForward() {
  if (find_unused_ || rebuilt_ || !reduced_) return;
  MakeBuckets({first_cap_, cap_}, false);
  rebuilt_ = true;
}

// _DDPSink: with find_unused_parameters, outputs with a gradient are copied.
void Ddp::EndForward(ModelOutput& outputs) {
  if (!find_unused_ || !runtime_.grad_enabled) return;
  std::vector<Tensor*> tensors;
  for (Tensor* tensor : {&outputs.loss, &outputs.logits}) {
    if (tensor->requires_grad()) tensors.push_back(tensor);
  }
  for (Tensor& other : outputs.others) {
    if (other.requires_grad()) tensors.push_back(&other);
  }
  if (tensors.empty()) return;
  std::vector<Tensor> inputs;
  for (const Tensor* tensor : tensors) inputs.push_back(*tensor);
  const Scoped kind(runtime_.kind, Kind::kLogitsLoss);
  GradRecorder record(runtime_, "_DDPSinkBackward", inputs);
  for (Tensor* tensor : tensors) *tensor = EmptyLike(*tensor);
  record.Finish(tensors, [](Grads& grads) -> Grads { return std::move(grads); });
}

}  // namespace headroom::predict
