// SPDX-License-Identifier: Apache-2.0
#include "predict/shard_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom::predict {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Role = ShardUnit::Role;

const std::vector<std::string> kLlama = {"model.embed_tokens.weight",
                                         "model.layers.0.self_attn.q_proj.weight",
                                         "model.layers.0.mlp.up.weight",
                                         "model.layers.1.self_attn.q_proj.weight",
                                         "model.norm.weight",
                                         "lm_head.weight"};

TEST(ShardUnits, AreLayersEmbeddingTailAndRoot) {
  const std::vector<ShardUnit> units = FindShardUnits(kLlama, false);
  ASSERT_EQ(units.size(), 5U);
  EXPECT_THAT(units[0].parameters, ElementsAre(1, 2));
  EXPECT_THAT(units[0].modules, ElementsAre("model.layers.0"));
  EXPECT_THAT(units[1].parameters, ElementsAre(3));
  EXPECT_EQ(units[2].role, Role::kInputEmbedding);
  EXPECT_THAT(units[3].modules, ElementsAre("model.norm", "lm_head"));
  EXPECT_EQ(units[4].role, Role::kRoot);
  EXPECT_THAT(units[4].parameters, IsEmpty());
}

TEST(ShardUnits, GatherATiedEmbeddingWithTheHead) {
  const std::vector<std::string> names = {"transformer.wte.weight", "transformer.wpe.weight",
                                          "transformer.h.0.ln_1.weight", "transformer.ln_f.weight"};
  EXPECT_TRUE(TiesOutputHead(names, Task::kCausalLm));
  const std::vector<ShardUnit> units = FindShardUnits(names, true);
  ASSERT_EQ(units.size(), 3U);
  EXPECT_EQ(units[1].role, Role::kTail);
  EXPECT_THAT(units[1].parameters, ElementsAre(3, 0));
  EXPECT_THAT(units[1].modules, ElementsAre("transformer.wte", "transformer.ln_f", "lm_head"));
  EXPECT_THAT(units[2].parameters, ElementsAre(1));
}

TEST(ShardUnits, TieNothingInAClassifier) {
  EXPECT_FALSE(
      TiesOutputHead({"model.embed_tokens.weight", "score.weight"}, Task::kSequenceClassification));
  EXPECT_FALSE(TiesOutputHead(kLlama, Task::kCausalLm));
}

TEST(ShardUnits, LeaveTheNormsOfEncoderAndDecoderToTheRoot) {
  const std::vector<ShardUnit> units = FindShardUnits(
      {"shared.weight", "encoder.block.0.a.weight", "encoder.final_layer_norm.weight",
       "decoder.block.0.a.weight", "decoder.final_layer_norm.weight"},
      true);
  EXPECT_THAT(units.back().parameters, ElementsAre(2, 4));
}

}  // namespace
}  // namespace headroom::predict
