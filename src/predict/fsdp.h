// SPDX-License-Identifier: Apache-2.0
//
// FSDP2 (fully_shard) on one rank: a share of every parameter, gradient and optimizer state, and a
// unit's whole parameters only while it runs.
//
//   forward    gather unit 1 | run | free | gather unit 2 (1's gather buffer goes) | run | free | …
//   backward   gather unit n-1 ahead | run unit n | free n's parameters | reduce-scatter its grads
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "predict/shard_units.h"
#include "predict/wrapper.h"

namespace headroom::predict {

class Fsdp : public Wrapper {
 public:
  // Shards `weights`, whose parameters have no memory yet; the shares are kept in `shard_dtype`.
  Fsdp(Runtime& runtime, const Recipe& recipe, const Weights& weights, DType shard_dtype);

  const std::vector<Tensor>& optimizer_parameters() const override { return shards_; }
  // fsdp2_prepare_model does not go through prepare_model; the policy casts instead.
  bool uses_autocast() const override { return false; }
  void BeginForward() override;
  void EndForward(ModelOutput& outputs) override;
  void BeginBackward(bool sync) override;
  void EndBackward() override;
  void EnterForward(ModuleId module) override;
  void LeaveForward(ModuleId module) override;
  void BeforeNode(ModuleId module) override;

 private:
  enum class State { kIdle, kForward, kPreBackward, kPostBackward };
  // An FSDPParamGroup.
  struct Unit {
    ShardUnit what;
    std::vector<ModuleId> modules;
    int64_t shard_numel = 0;  // of this rank, padded
    bool reshard_after_forward = true;
    // Its inputs carry a gradient: backward knows when the unit is done.
    bool has_input_gradient = true;
    State state = State::kIdle;
    bool whole = false;         // parameters have memory
    Tensor gathered;            // the all-gather's result, before it is copied out
    size_t modules_to_run = 0;  // of a group, in this forward
    std::optional<ModuleId> opened_by;
    // The embedding of an encoder-decoder stands twice: the modules that share it keep the weight
    // that was there before the first unit took it, and the root shards that again.
    Ref<Storage> twin;
    int64_t twin_numel = 0;
    std::vector<size_t> post_forward_at;  // positions in post_forward_order_
  };

  void Shard(Unit& unit, std::vector<Tensor>& held);
  Unit& root() { return units_.back(); }
  size_t UnitOf(ModuleId module) { return UnitOfModule(runtime_, what_, unit_of_module_, module); }

  void Unshard(Unit& unit, State state);
  void WaitForUnshard(Unit& unit);
  void Reshard(Unit& unit);
  void PreForward(Unit& unit);
  void PostForward(Unit& unit);
  void PreBackward(size_t unit);
  void PostBackward(Unit& unit);
  void ReduceScatter(const Unit& unit, const std::vector<size_t>& positions,
                     std::vector<Tensor>& grads);
  void ShardTwin(Unit& unit);

  Runtime& runtime_;
  const Weights& weights_;
  int64_t ranks_;
  DType whole_dtype_;
  DType shard_dtype_;
  bool casts_;                   // the two differ
  std::vector<ShardUnit> what_;  // as wrapped: layers, embedding, tail, root
  std::vector<Unit> units_;      // the same
  std::vector<Tensor> shards_;   // of parameter i
  std::vector<int64_t> shard_numels_;
  std::vector<int> unit_of_module_;  // by ModuleId; -1: not looked up yet
  std::vector<size_t> post_forward_order_;
  // Held over from one unit to the next, so that communication and computation overlap.
  Tensor last_gathered_;
  Tensor reduce_scatter_input_;
  Tensor twin_shard_;
  size_t running_ = 0;  // the unit that backward is in
  bool sync_ = true;
};

}  // namespace headroom::predict
