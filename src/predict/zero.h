// SPDX-License-Identifier: Apache-2.0
//
// DeepSpeed's ZeRO on one rank, stages 1 and 2: the model in 16 bits as a whole, and this rank's
// share of fp32 weights and optimizer states as one flat tensor.
//
//   stage 1   weights 2  gradients 2      fp32 weights and states 12 / ranks   bytes a parameter
//   stage 2   weights 2  gradients 2/ranks                        12 / ranks
//
// Stage 3 shards the weights too: Zero3, on top of FSDP's gathering.
#pragma once

#include <vector>

#include "predict/fsdp.h"
#include "predict/shard_units.h"
#include "predict/wrapper.h"

namespace headroom::predict {

class Zero final : public Wrapper {
 public:
  Zero(Runtime& runtime, const Recipe& recipe, const Weights& weights);

  const std::vector<Tensor>& optimizer_parameters() const override { return partition_; }
  // The engine converts the model and its inputs instead.
  bool uses_autocast() const override { return false; }
  void BeginBackward(bool sync) override;
  void EndBackward() override;
  void BeforeNode(ModuleId module) override;
  void BeginStep() override;
  void EndStep() override;

 private:
  void Reduce(size_t unit);

  Runtime& runtime_;
  const Weights& weights_;
  int64_t ranks_;
  bool keeps_share_;  // stage 2: gradients leave once they are reduced
  std::vector<ShardUnit> units_;
  std::vector<int> unit_of_module_;
  std::vector<Tensor> partition_;  // this rank's fp32 weights
  std::vector<Tensor> share_;      // stage 2: reduced gradients of this rank, by unit
  std::vector<Tensor> reduce_buffers_;
  size_t running_ = 0;
  int64_t bucket_ = 0;  // elements
};

// Stage 3.
class Zero3 final : public Fsdp {
 public:
  Zero3(Runtime& runtime, const Recipe& recipe, const Weights& weights);

  const std::vector<Tensor>& optimizer_parameters() const override { return partition_; }
  void BeginStep() override;
  void EndStep() override;

 private:
  Runtime& runtime_;
  std::vector<Tensor> partition_;
};

// TrainingArguments' reduce_bucket_size "auto": hidden_size squared (transformers 5.17.0,
// integrations/deepspeed.py). The hidden size is read off the weights: their commonest row.
int64_t AutoBucketSize(const Weights& weights);

}  // namespace headroom::predict
