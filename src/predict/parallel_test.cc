// SPDX-License-Identifier: Apache-2.0
//
// What one rank of several holds, on a model small enough to count by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "model/config.h"
#include "predict/predict.h"

namespace headroom {
namespace {

using ::testing::HasSubstr;

ModelConfig Tiny() {
  const Result<ModelConfig> config = ModelConfig::FromJson(
      R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 256,
          "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4})",
      "tiny");
  EXPECT_TRUE(config.ok());
  return *config;
}

Recipe OverRanks(Sharding sharding, int64_t ranks) {
  Recipe recipe;
  recipe.per_device_train_batch_size = 1;
  recipe.sequence_length = 8;
  recipe.precision = Precision::kBf16;
  recipe.parallel.sharding = sharding;
  recipe.parallel.ranks = ranks;
  return recipe;
}

Prediction Play(const Recipe& recipe) {
  Platform platform = MeasuredPlatform();
  platform.allocator.backend = AllocatorOptions::Backend::kIdeal;
  Result<Prediction> prediction = Predict(Tiny(), recipe, platform);
  EXPECT_TRUE(prediction.ok());
  return *std::move(prediction);
}

// Bytes of a component at the last mark of this name.
int64_t At(const Prediction& prediction, std::string_view mark, Component component) {
  const std::vector<ComponentBytes> at_marks = prediction.ledger.ComponentsAtMarks();
  int64_t bytes = -1;
  for (size_t i = 0; i < at_marks.size(); ++i) {
    if (prediction.ledger.marks()[i].name != mark) continue;
    bytes = at_marks[i][static_cast<size_t>(component)].count();
  }
  return bytes;
}

TEST(Parallel, FsdpKeepsAShareOfWeightsAndStates) {
  const Prediction four = Play(OverRanks(Sharding::kFsdp, 4));
  EXPECT_EQ(At(four, "step_end", Component::kWeights), four.parameters * 4 / 4);
  EXPECT_EQ(At(four, "backward_end", Component::kGradients), four.parameters * 4 / 4);
  EXPECT_EQ(At(four, "step_end", Component::kGradients), 0);
}

TEST(Parallel, FsdpKeepsGradientsWholeUntilTheLastMicroBatch) {
  Recipe recipe = OverRanks(Sharding::kFsdp, 4);
  recipe.gradient_accumulation_steps = 2;
  const Prediction prediction = Play(recipe);
  EXPECT_EQ(At(prediction, "substep_end", Component::kGradients), prediction.parameters * 2);
  EXPECT_EQ(At(prediction, "backward_end", Component::kGradients), prediction.parameters);
}

TEST(Parallel, DdpKeepsGradientsTwice) {
  const Prediction two = Play(OverRanks(Sharding::kDdp, 2));
  EXPECT_EQ(At(two, "backward_end", Component::kGradients), two.parameters * 4 * 2);
  EXPECT_EQ(At(two, "step_end", Component::kGradients), two.parameters * 4);
}

TEST(Parallel, ZeroShardsMoreWithEachStage) {
  const Prediction one = Play(OverRanks(Sharding::kZero1, 4));
  const Prediction two = Play(OverRanks(Sharding::kZero2, 4));
  const Prediction three = Play(OverRanks(Sharding::kZero3, 4));
  EXPECT_EQ(At(one, "backward_end", Component::kGradients), one.parameters * 2);
  EXPECT_EQ(At(two, "backward_end", Component::kGradients), two.parameters * 2 / 4);
  EXPECT_EQ(At(two, "step_end", Component::kWeights), two.parameters * (2 + 4 / 4));
  EXPECT_EQ(At(three, "step_end", Component::kWeights), three.parameters * (2 + 4) / 4);
}

TEST(Parallel, TensorParallelRanksShareTheLargeMatrices) {
  const Prediction two = Play(OverRanks(Sharding::kTensorParallel, 2));
  const int64_t embedding = 256 * 64;
  const int64_t norms = 7 * 64;
  const int64_t shared = two.parameters - embedding - norms;
  EXPECT_EQ(At(two, "step_end", Component::kWeights), (embedding + norms + shared / 2) * 4);
}

TEST(Parallel, TensorParallelRefusesHeadsThatDoNotDivide) {
  const Result<Prediction> prediction =
      Predict(Tiny(), OverRanks(Sharding::kTensorParallel, 3), MeasuredPlatform());
  ASSERT_FALSE(prediction.ok());
  EXPECT_THAT(prediction.error().message,
              HasSubstr("3 does not divide the model's num_attention_heads 4"));
}

TEST(Parallel, EachStepHasTheLengthOfItsBatch) {
  Recipe recipe = OverRanks(Sharding::kNone, 1);
  recipe.sequence_length = 64;
  recipe.batches = {{1, 8}, {1, 64}, {2, 8}};
  const Prediction prediction = Play(recipe);
  EXPECT_EQ(prediction.ledger.marks().back().step, 3);
  std::vector<Bytes> peaks(4);
  for (const PhaseMark& mark : prediction.ledger.marks()) {
    Bytes& peak = peaks[static_cast<size_t>(mark.step)];
    peak = std::max(peak, mark.peak_allocated);
  }
  EXPECT_GT(peaks[2], peaks[1]);
  EXPECT_GT(peaks[2], peaks[3]);
}

TEST(Parallel, ARunEndsWhereItIsToldTo) {
  Recipe recipe = OverRanks(Sharding::kNone, 1);
  recipe.batches = {{1, 8}, {1, 8}, {1, 8}};
  const Result<Prediction> prediction =
      Predict(Tiny(), recipe, MeasuredPlatform(), nullptr, [](int step) { return step < 3; });
  ASSERT_TRUE(prediction.ok());
  EXPECT_EQ(prediction->ledger.marks().back().step, 2);
}

}  // namespace
}  // namespace headroom
