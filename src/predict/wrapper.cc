// SPDX-License-Identifier: Apache-2.0
#include "predict/wrapper.h"

#include "predict/ddp.h"
#include "predict/fsdp.h"
#include "predict/tensor_parallel.h"
#include "predict/zero.h"

namespace headroom::predict {

ShardLayout LayoutOf(const Recipe& recipe) {
  ShardLayout layout;
  layout.ranks = recipe.parallel.ranks;
  layout.whole_dtype = recipe.weights_dtype.value_or(DType::kFloat32);
  const Sharding sharding = recipe.parallel.sharding;
  layout.sharded = sharding == Sharding::kFsdp || sharding == Sharding::kZero3;
  const bool converted =
      layout.sharded || sharding == Sharding::kZero1 || sharding == Sharding::kZero2;
  if (!converted) return layout;
  if (recipe.precision == Precision::kBf16) layout.whole_dtype = DType::kBFloat16;
  if (recipe.precision == Precision::kFp16) layout.whole_dtype = DType::kFloat16;
  return layout;
}

std::unique_ptr<Wrapper> MakeWrapper(Runtime& runtime, const Recipe& recipe,
                                     const Weights& weights) {
  switch (recipe.parallel.sharding) {
    case Sharding::kDdp:
      return std::make_unique<Ddp>(runtime, recipe, weights);
    case Sharding::kFsdp:
      // Trained weights are upcast before they are sharded, where a policy casts them back.
      return std::make_unique<Fsdp>(
          runtime, recipe, weights,
          recipe.precision == Precision::kBf16 || recipe.precision == Precision::kFp16
              ? DType::kFloat32
              : LayoutOf(recipe).whole_dtype);
    case Sharding::kZero1:
    case Sharding::kZero2:
      return std::make_unique<Zero>(runtime, recipe, weights);
    case Sharding::kZero3:
      return std::make_unique<Zero3>(runtime, recipe, weights);
    case Sharding::kTensorParallel:
      return std::make_unique<TensorParallel>(runtime, recipe, weights);
    case Sharding::kNone:
      break;
  }
  return nullptr;
}

}  // namespace headroom::predict
