// SPDX-License-Identifier: Apache-2.0
//
// DistributedDataParallel on one rank: everything of a single process, and the gradients a second
// time, in the buckets that are reduced.
#pragma once

#include <vector>

#include "predict/wrapper.h"

namespace headroom::predict {

class Ddp final : public Wrapper {
 public:
  Ddp(Runtime& runtime, const Recipe& recipe, const Weights& weights);

  const std::vector<Tensor>& optimizer_parameters() const override { return weights_.parameters(); }
  void BeginForward() override;
  void EndForward(ModelOutput& outputs) override;
  void BeginBackward(bool sync) override { reduced_ |= sync; }

 private:
  void MakeBuckets(std::vector<Bytes> limits, bool reversed);

  Runtime& runtime_;
  const Weights& weights_;
  bool find_unused_;
  Bytes cap_;
  Bytes first_cap_;
  std::vector<Tensor> buckets_;
  Tensor used_map_;
  bool reduced_ = false;  // a backward has told in which order gradients come
  bool rebuilt_ = false;
};

}  // namespace headroom::predict
