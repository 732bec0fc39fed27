// SPDX-License-Identifier: Apache-2.0
#include "predict/optimizers.h"

#include <gtest/gtest.h>

#include "predict/ops.h"
#include "predict/optimizers_bnb.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

constexpr int64_t kRounding = 512;

int64_t Rounded(int64_t bytes) { return (bytes + kRounding - 1) / kRounding * kRounding; }

class OptimizersTest : public testing::Test {
 protected:
  OptimizerParameter Parameter(const Shape& shape, bool is_embedding = false) {
    Tensor tensor = Empty(runtime_, shape, DType::kFloat32);
    tensor.impl()->leaf_requires_grad = true;
    tensor.grad() = EmptyLike(tensor);
    return {tensor, true, is_embedding};
  }
  // What the first step of `optim` over one parameter leaves.
  int64_t States(Optim optim, const OptimizerParameter& parameter) {
    const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(optim, runtime_, {parameter});
    const Bytes before = runtime_.ledger().allocated();
    optimizer->Step();
    return (runtime_.ledger().allocated() - before).count();
  }

  Runtime runtime_{MeasuredPlatform()};
};

TEST_F(OptimizersTest, EightBitAdamKeepsBytesMaximaAndTwoMaps) {
  const OptimizerParameter matrix = Parameter({1000, 1000});
  EXPECT_EQ(States(Optim::kAdamW8bit, matrix),
            2 * 1024 + 2 * Rounded(1000000) + 2 * Rounded(3907 * 4));
}

TEST_F(OptimizersTest, SmallParametersKeep32Bit) {
  EXPECT_EQ(States(Optim::kAdamW8bit, Parameter({4095})), 2 * Rounded(4095 * 4));
  EXPECT_EQ(States(Optim::kAdamW8bit, Parameter({4096})),
            2 * 1024 + 2 * Rounded(4096) + 2 * Rounded(16 * 4));
}

TEST_F(OptimizersTest, EmbeddingsKeep32Bit) {
  EXPECT_EQ(States(Optim::kAdamW8bit, Parameter({1000, 100}, true)), 2 * Rounded(400000));
}

TEST_F(OptimizersTest, LionHasOneState) {
  EXPECT_EQ(States(Optim::kLion32bit, Parameter({1000, 1000})), Rounded(4000000));
  EXPECT_EQ(States(Optim::kLion8bit, Parameter({1000, 1000})),
            1024 + Rounded(1000000) + Rounded(3907 * 4));
}

TEST_F(OptimizersTest, AdEMAMixHasThree) {
  EXPECT_EQ(
      States(Optim::kAdEMAMix8bit, Parameter({1000, 1000})),
      2 * 1024 + Rounded(2 * 3907 * 4) + Rounded(3907 * 4) + Rounded(2000000) + Rounded(1000000));
}

TEST_F(OptimizersTest, LargePagedStatesLieElsewhere) {
  EXPECT_EQ(States(Optim::kPagedAdamW32bit, Parameter({1000, 1000})), 0);
  EXPECT_EQ(States(Optim::kPagedAdamW32bit, Parameter({100, 100})), 2 * Rounded(40000));
}

TEST(Decays, LeavesOutBiasesAndNorms) {
  EXPECT_TRUE(Decays("model.layers.0.self_attn.q_proj.weight", 2));
  EXPECT_FALSE(Decays("model.norm.weight", 1));
  EXPECT_FALSE(Decays("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", 2));
  EXPECT_FALSE(Decays("model.layers.0.self_attn.q_norm.weight", 2));
}

}  // namespace
}  // namespace headroom::predict
