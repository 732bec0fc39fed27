// SPDX-License-Identifier: Apache-2.0
#include "engine/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/data/random.h"

namespace headroom::engine {
namespace {

using ::testing::ElementsAre;

TEST(Random, DrawsEvenlyBelowABound) {
  Random random{1, 2};
  int counts[7] = {};
  for (int i = 0; i < 70'000; ++i) ++counts[random.Below(7)];
  // Seven counts of mean 10,000 and deviation 93: five deviations.
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 463);
}

TEST(Random, DependsOnEachWordOfItsKeyAndOnTheirOrder) {
  std::set<uint64_t> first;
  for (const auto& key : {Random{}, Random{0}, Random{1}, Random{0, 0}, Random{0, 1}, Random{1, 0},
                          Random{1, 1}, Random{1, 2, 3}, Random{3, 2, 1}}) {
    Random random = key;
    first.insert(random.Next());
  }
  EXPECT_EQ(first.size(), 9u);
}

TEST(SyntheticDataset, DrawsIdsAsTheDocumentsDo) {
  const Dataset dataset = SyntheticDataset({.sequence = 16});
  ASSERT_EQ(dataset.size(), 512);
  EXPECT_EQ(dataset.LongestSequence(), 16);
  EXPECT_LT(dataset.LargestId(), 30'000);
  for (int64_t i = 0; i < dataset.size(); ++i) {
    EXPECT_GE(std::ranges::min(dataset[i].ids), 100);
    EXPECT_THAT(dataset[i].labels, ElementsAre(0));
  }
}

TEST(SyntheticDataset, StaysInsideASmallVocabulary) {
  EXPECT_LT(SyntheticDataset({.sequence = 8, .vocabulary = 120}).LargestId(), 120);
  EXPECT_LT(SyntheticDataset({.sequence = 8, .vocabulary = 7}).LargestId(), 7);
}

TEST(SyntheticDataset, RepeatsWithItsSeedAlone) {
  const SyntheticOptions options{.rows = 3, .sequence = 8};
  SyntheticOptions other = options;
  other.seed = 43;
  EXPECT_EQ(SyntheticDataset(options)[2], SyntheticDataset(options)[2]);
  EXPECT_NE(SyntheticDataset(options)[2], SyntheticDataset(other)[2]);
}

TEST(SyntheticDataset, LabelsLanguageModelsWithTheirIds) {
  const Dataset causal = SyntheticDataset({.rows = 2, .sequence = 4, .task = Task::kCausalLm});
  EXPECT_EQ(causal[1].labels, causal[1].ids);
  const Dataset translation =
      SyntheticDataset({.rows = 2, .sequence = 4, .decoder_sequence = 3, .task = Task::kSeq2SeqLm});
  EXPECT_EQ(translation[0].decoder_ids.size(), 3u);
  EXPECT_EQ(translation[0].labels.size(), 3u);
  EXPECT_EQ(translation.LongestDecoderSequence(), 3);
}

Dataset Numbered(int count) {
  std::vector<Example> examples;
  for (int i = 0; i < count; ++i) examples.push_back({.ids = {i}, .labels = {i % 3}});
  Dataset dataset(std::move(examples));
  dataset.set_label_names({"a", "b", "c"});
  return dataset;
}

TEST(Split, SharesEachExampleOutOnce) {
  const auto [train, eval] = Split(Numbered(20), 0.25, 7);
  EXPECT_EQ(train.size(), 15);
  EXPECT_EQ(eval.size(), 5);
  std::set<int32_t> seen;
  for (const Dataset* part : {&train, &eval}) {
    for (int64_t i = 0; i < part->size(); ++i) {
      EXPECT_TRUE(seen.insert((*part)[i].ids[0]).second);
      EXPECT_TRUE(i == 0 || (*part)[i - 1].ids[0] < (*part)[i].ids[0]);
    }
  }
  EXPECT_EQ(seen.size(), 20u);
  EXPECT_EQ(eval.label_names().size(), 3u);
}

TEST(Split, LeavesNeitherPartEmpty) {
  EXPECT_EQ(Split(Numbered(2), 0.01, 1).second.size(), 1);
  EXPECT_EQ(Split(Numbered(2), 0.99, 1).first.size(), 1);
  EXPECT_EQ(Split(Numbered(5), 0, 1).second.size(), 0);
  EXPECT_EQ(Split(Numbered(1), 0.5, 1).first.size() + Split(Numbered(1), 0.5, 1).second.size(), 1);
}

TEST(Split, FollowsItsSeed) {
  const auto ids = [](const Dataset& part) {
    std::vector<int32_t> all;
    for (int64_t i = 0; i < part.size(); ++i) all.push_back(part[i].ids[0]);
    return all;
  };
  EXPECT_EQ(ids(Split(Numbered(50), 0.2, 1).second), ids(Split(Numbered(50), 0.2, 1).second));
  EXPECT_NE(ids(Split(Numbered(50), 0.2, 1).second), ids(Split(Numbered(50), 0.2, 2).second));
}

}  // namespace
}  // namespace headroom::engine
