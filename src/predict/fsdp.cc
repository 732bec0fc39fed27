// SPDX-License-Identifier: Apache-2.0
//
// torch/distributed/fsdp/_fully_shard/{_fsdp_state,_fsdp_param_group,_fsdp_param,
// _fsdp_collectives}.py of PyTorch 2.11.0; accelerate 1.15.0, utils/fsdp_utils.py.
#include "predict/fsdp.h"

#include <algorithm>

#include "base/check.h"
#include "predict/autograd.h"
#include "predict/ops.h"

namespace headroom::predict {
namespace {

// FSDPCommContext's streams; a freed block serves only its own.
constexpr int kGatherStream = 1;
constexpr int kReduceStream = 2;

class OnStream {
 public:
  OnStream(Runtime& runtime, int stream) : runtime_(runtime) { runtime.UseStream(stream); }
  ~OnStream() { runtime_.UseStream(0); }
  OnStream(const OnStream&) = delete;

 private:
  Runtime& runtime_;
};

int64_t RowsPerRank(const Shape& shape, int64_t ranks) {
  return shape.rank() == 0 ? 1 : (shape[0] + ranks - 1) / ranks;
}

// The shape of rank 0's chunk: torch.chunk gives the first ranks the larger shares.
Shape ShardShape(const Shape& shape, int64_t ranks) {
  Shape shard = shape;
  if (shard.rank() > 0) shard[0] = RowsPerRank(shape, ranks);
  return shard;
}

}  // namespace

Fsdp::Fsdp(Runtime& runtime, const Recipe& recipe, const Weights& weights, DType shard_dtype)
    : runtime_(runtime),
      weights_(weights),
      ranks_(recipe.parallel.ranks),
      whole_dtype_(LayoutOf(recipe).whole_dtype),
      shard_dtype_(shard_dtype),
      casts_(whole_dtype_ != shard_dtype) {
  shards_.resize(weights.parameters().size());
  for (const Tensor& parameter : weights.parameters()) {
    shard_numels_.push_back(ShardShape(parameter.shape(), ranks_).NumElements());
  }
  const bool tied = TiesOutputHead(weights.parameter_names(), recipe.task);
  what_ = FindShardUnits(weights.parameter_names(), tied);
  std::vector<Tensor> held;
  for (const ShardUnit& what : what_) {
    Unit unit;
    unit.what = what;
    const ShardUnit::Role role = unit.what.role;
    for (const std::string& path : unit.what.modules) {
      unit.modules.push_back(runtime.ledger().InternModule(path));
    }
    const bool keeps = role == ShardUnit::Role::kTail || role == ShardUnit::Role::kRoot;
    unit.reshard_after_forward = !keeps && recipe.parallel.reshard_after_forward;
    // Token ids carry none.
    unit.has_input_gradient =
        role == ShardUnit::Role::kLayer || (role == ShardUnit::Role::kTail && !tied);
    if (role == ShardUnit::Role::kRoot && tied && recipe.task == Task::kSeq2SeqLm) ShardTwin(unit);
    Shard(unit, held);
    units_.push_back(std::move(unit));
  }
}

void Fsdp::ShardTwin(Unit& unit) {
  for (const ShardUnit& what : what_) {
    if (what.role != ShardUnit::Role::kTail) continue;
    const size_t embedding = what.parameters.back();
    unit.twin_numel = shard_numels_[embedding];
    unit.shard_numel += unit.twin_numel;
    unit.twin = MakeRef<Storage>(
        runtime_, weights_.parameters()[embedding].impl()->storage->bytes(), Storage::Deferred{});
    const Scoped component(runtime_.component, Component::kWeights);
    const OpScope op(runtime_, "fully_shard");
    twin_shard_ = Empty(runtime_, {unit.twin_numel}, shard_dtype_);
  }
}

// fully_shard(module): the whole parameters come to the GPU, their shares are copied, they go; but
// for the embeddings of input and output, which locals of fsdp2_prepare_model hold to its end.
void Fsdp::Shard(Unit& unit, std::vector<Tensor>& held) {
  const OpScope op(runtime_, "fully_shard");
  const Scoped component(runtime_.component, Component::kWeights);
  std::vector<Tensor> whole;
  for (const size_t i : unit.what.parameters) {
    whole.push_back(Empty(runtime_, weights_.parameters()[i].shape(), shard_dtype_));
  }
  const Scoped module(runtime_.module, unit.modules.empty() ? ModuleId{} : unit.modules.front());
  for (const size_t i : unit.what.parameters) {
    shards_[i] =
        Empty(runtime_, ShardShape(weights_.parameters()[i].shape(), ranks_), shard_dtype_);
    shards_[i].impl()->leaf_requires_grad = weights_.parameters()[i].requires_grad();
    unit.shard_numel += shard_numels_[i];
  }
  const bool embeds = unit.what.role == ShardUnit::Role::kInputEmbedding ||
                      unit.what.role == ShardUnit::Role::kTail;
  if (embeds) held.push_back(whole.back());
}

// ---- Parameters come and go ----

// FSDPParamGroup.unshard -> foreach_all_gather.
void Fsdp::Unshard(Unit& unit, State state) {
  if (unit.whole || unit.gathered.defined() || unit.shard_numel == 0) return;
  const OnStream stream(
      runtime_, state == State::kForward || state == State::kPreBackward ? kGatherStream : 0);
  const Scoped component(runtime_.component, Component::kTemporaries);
  const Scoped kind(runtime_.kind, Kind::kCollective);
  const Scoped module(runtime_.module, unit.modules.front());
  const OpId before = runtime_.op();
  runtime_.set_op(runtime_.InternOp("all_gather"));
  Tensor input;
  if (casts_) input = Empty(runtime_, {unit.shard_numel}, whole_dtype_);
  unit.gathered = Empty(runtime_, {unit.shard_numel * ranks_}, whole_dtype_);
  runtime_.set_op(before);
}

// FSDPParamGroup.wait_for_unshard: in forward the buffer of the last gather goes only at its end,
// and this one stays for the next unit to overlap with.
void Fsdp::WaitForUnshard(Unit& unit) {
  if (!unit.gathered.defined()) return;
  const bool forward = unit.state == State::kForward;
  const Tensor previous = forward ? last_gathered_ : Tensor();
  const Scoped component(runtime_.component, Component::kWeights);
  const Scoped kind(runtime_.kind, Kind::kOther);
  const Scoped module(runtime_.module, unit.modules.front());
  const OpId before = runtime_.op();
  runtime_.set_op(runtime_.InternOp("all_gather_copy_out"));
  for (const size_t i : unit.what.parameters) {
    weights_.parameters()[i].impl()->storage->Acquire();
  }
  if (unit.twin) unit.twin->Acquire();
  runtime_.set_op(before);
  unit.whole = true;
  if (forward) last_gathered_ = unit.gathered;
  unit.gathered = Tensor();
}

void Fsdp::Reshard(Unit& unit) {
  if (!unit.whole) return;
  for (const size_t i : unit.what.parameters) {
    weights_.parameters()[i].impl()->storage->Release();
  }
  if (unit.twin) unit.twin->Release();
  unit.whole = false;
}

// ---- Forward ----

void Fsdp::PreForward(Unit& unit) {
  unit.state = State::kForward;
  Unshard(unit, State::kForward);
  WaitForUnshard(unit);
}

void Fsdp::PostForward(Unit& unit) {
  if (unit.reshard_after_forward) Reshard(unit);
  unit.post_forward_at.push_back(post_forward_order_.size());
  post_forward_order_.push_back(static_cast<size_t>(&unit - units_.data()));
  unit.state = State::kIdle;
  unit.opened_by.reset();
}

void Fsdp::BeginForward() {
  running_ = units_.size() - 1;
  PreForward(root());
}

void Fsdp::EndForward(ModelOutput& outputs) {
  for (Unit& unit : units_) {
    if (unit.opened_by) PostForward(unit);
  }
  PostForward(root());
  // Freed as _post_forward returns.
  const Tensor previous = std::move(last_gathered_);
  last_gathered_ = Tensor();
  // MixedPrecisionPolicy.output_dtype
  if (!casts_) return;
  const auto cast = [&](Tensor& x) {
    if (x.defined() && x.dtype() == DType::kFloat32) x = ToCopy(x, whole_dtype_);
  };
  cast(outputs.loss);
  cast(outputs.logits);
  for (Tensor& other : outputs.others) cast(other);
}

void Fsdp::EnterForward(ModuleId module) {
  const size_t at = UnitOf(module);
  Unit& unit = units_[at];
  if (at + 1 == units_.size() || unit.opened_by) return;
  if (runtime_.thread == Thread::kBackward) {
    // Recomputation: the unit is whole already.
    Unshard(unit, State::kPreBackward);
    WaitForUnshard(unit);
    return;
  }
  // A layer whose own forward is not named ends when another unit begins.
  for (Unit& open : units_) {
    const bool named = open.opened_by && open.modules.front() == *open.opened_by;
    if (open.opened_by && !named && open.what.role == ShardUnit::Role::kLayer) PostForward(open);
  }
  unit.opened_by = module;
  unit.modules_to_run = unit.modules.size();
  PreForward(unit);
}

void Fsdp::LeaveForward(ModuleId module) {
  if (runtime_.thread == Thread::kBackward) return;
  const size_t at = UnitOf(module);
  Unit& unit = units_[at];
  if (at + 1 == units_.size() || !unit.opened_by) return;
  if (std::find(unit.modules.begin(), unit.modules.end(), module) == unit.modules.end()) return;
  if (--unit.modules_to_run == 0) PostForward(unit);
}

// ---- Backward ----

void Fsdp::BeginBackward(bool sync) {
  sync_ = sync;
  PreBackward(units_.size() - 1);
}

// pre_backward, and _backward_prefetch of the unit that ran before this one.
void Fsdp::PreBackward(size_t at) {
  Unit& unit = units_[at];
  unit.state = State::kPreBackward;
  Unshard(unit, State::kPreBackward);
  WaitForUnshard(unit);
  if (unit.post_forward_at.empty()) return;
  const size_t position = unit.post_forward_at.back();
  unit.post_forward_at.pop_back();
  if (position == 0) return;
  Unshard(units_[post_forward_order_[position - 1]], State::kPreBackward);
}

void Fsdp::BeforeNode(ModuleId module) {
  const size_t at = UnitOf(module);
  if (at != running_) {
    Unit& done = units_[running_];
    if (done.has_input_gradient && done.state == State::kPreBackward) PostBackward(done);
    running_ = at;
  }
  if (units_[at].state != State::kPreBackward) PreBackward(at);
}

void Fsdp::PostBackward(Unit& unit) {
  unit.state = State::kPostBackward;
  if (!sync_) {
    Reshard(unit);
    return;
  }
  std::vector<size_t> with_grad;
  std::vector<Tensor> grads;
  for (const size_t i : unit.what.parameters) {
    Tensor& grad = weights_.parameters()[i].grad();
    if (!grad.defined()) continue;
    with_grad.push_back(i);
    grads.push_back(std::move(grad));
    grad = Tensor();
  }
  Reshard(unit);
  if (with_grad.empty()) return;
  const Scoped module(runtime_.module, unit.modules.empty() ? ModuleId{} : unit.modules.front());
  ReduceScatter(unit, with_grad, grads);
}

// foreach_reduce. The input stays until the next unit's reduction or the end of backward; the last
// gradient is a loop variable, and stays until it returns.
void Fsdp::ReduceScatter(const Unit& unit, const std::vector<size_t>& positions,
                         std::vector<Tensor>& grads) {
  reduce_scatter_input_ = Tensor();
  const OpId before = runtime_.op();
  runtime_.set_op(runtime_.InternOp("reduce_scatter"));
  const Scoped kind(runtime_.kind, Kind::kCollective);
  int64_t numel = unit.twin_numel;
  for (const size_t i : positions) numel += shard_numels_[i];
  const DType dtype = grads.front().dtype();
  {
    const Scoped component(runtime_.component, Component::kTemporaries);
    reduce_scatter_input_ = Empty(runtime_, {numel * ranks_}, dtype);
  }
  const Tensor last = grads.back();
  grads.clear();
  const OnStream stream(runtime_, kReduceStream);
  Tensor output;
  {
    const bool casts = dtype != shards_[positions.front()].dtype();
    const Scoped component(runtime_.component,
                           casts ? Component::kTemporaries : Component::kGradients);
    output = Empty(runtime_, {numel}, dtype);
  }
  if (const DType kept = shards_[positions.front()].dtype(); kept != dtype) {
    const Scoped component(runtime_.component, Component::kGradients);
    output = Empty(runtime_, {numel}, kept);
  }
  for (const size_t i : positions) {
    Tensor& grad = shards_[i].grad();
    if (grad.defined()) continue;  // added in place
    grad = Tensor(MakeRef<TensorImpl>(output.impl()->storage, output.dtype(), shards_[i].shape(),
                                      shards_[i].strides()));
  }
  runtime_.set_op(before);
}

// _root_post_backward_final_callback: what no input gradient announced, root first.
void Fsdp::EndBackward() {
  const auto finish = [&](Unit& unit) {
    if (unit.state != State::kPostBackward) PostBackward(unit);
    unit.state = State::kIdle;
    unit.gathered = Tensor();
    unit.post_forward_at.clear();
  };
  finish(root());
  for (size_t i = 0; i + 1 < units_.size(); ++i) {
    if (units_[i].what.role != ShardUnit::Role::kLayer) finish(units_[i]);
  }
  for (size_t i = 0; i + 1 < units_.size(); ++i) {
    if (units_[i].what.role == ShardUnit::Role::kLayer) finish(units_[i]);
  }
  post_forward_order_.clear();
  reduce_scatter_input_ = Tensor();
}

}  // namespace headroom::predict
