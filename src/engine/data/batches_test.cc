// SPDX-License-Identifier: Apache-2.0
#include "engine/data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/data/prefetcher.h"

namespace headroom::engine {
namespace {

using ::testing::ElementsAre;

// Example i has the ids i * 1000 + 1 … and class i; lengths as given.
Dataset OfLengths(const std::vector<int>& lengths) {
  std::vector<Example> examples;
  for (size_t i = 0; i < lengths.size(); ++i) {
    Example example;
    example.ids.resize(static_cast<size_t>(lengths[i]));
    std::iota(example.ids.begin(), example.ids.end(), static_cast<int32_t>(i) * 1000 + 1);
    example.labels = {static_cast<int32_t>(i)};
    examples.push_back(std::move(example));
  }
  return Dataset(std::move(examples));
}

Dataset OfCount(int count) {
  std::vector<int> lengths;
  for (int i = 0; i < count; ++i) lengths.push_back(1 + i * 37 % 60);
  return OfLengths(lengths);
}

std::vector<Batch> Epoch(BatchStream stream) {
  std::vector<Batch> batches(static_cast<size_t>(stream.batches_per_epoch()));
  for (Batch& batch : batches) stream.Next(batch);
  return batches;
}

// The classes of all rows: which examples, in which order.
std::vector<int32_t> Order(const std::vector<Batch>& batches) {
  std::vector<int32_t> order;
  for (const Batch& batch : batches) {
    order.insert(order.end(), batch.labels.begin(), batch.labels.end());
  }
  return order;
}

void ExpectEqual(const Batch& a, const Batch& b) {
  EXPECT_EQ(a.position, b.position);
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.sequence, b.sequence);
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.lengths, b.lengths);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.decoder_ids, b.decoder_ids);
  EXPECT_EQ(a.targets, b.targets);
}

TEST(BatchStream, PadsToTheSmallestShapeThatHoldsTheLongest) {
  const Dataset dataset = OfLengths({3, 40, 100, 9, 56});
  BatchStream stream(dataset, {.batch_size = 2, .shuffle = false, .pad_id = -1});
  EXPECT_THAT(stream.shapes(), ElementsAre(BatchShape{32, 0}, BatchShape{56, 0}, BatchShape{80, 0},
                                           BatchShape{104, 0}));
  const std::vector<Batch> batches = Epoch(stream);
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(batches[0].sequence, 56);
  EXPECT_EQ(batches[1].sequence, 104);
  EXPECT_EQ(batches[2].sequence, 56);
  EXPECT_EQ(batches[2].rows, 1);
  EXPECT_THAT(batches[0].lengths, ElementsAre(3, 40));
  EXPECT_THAT(std::vector(batches[0].ids.begin(), batches[0].ids.begin() + 5),
              ElementsAre(1, 2, 3, -1, -1));
  EXPECT_EQ(batches[0].ids[56], 1001);
  EXPECT_EQ(batches[0].targets, 2);
}

TEST(BatchStream, PadsEverythingToTheMaximumWhenAsked) {
  const Dataset dataset = OfLengths({3, 40});
  BatchStream stream(dataset, {.batch_size = 1, .buckets = 1, .sequence = 50});
  EXPECT_THAT(stream.shapes(), ElementsAre(BatchShape{50, 0}));
  Batch batch;
  stream.Next(batch);
  EXPECT_EQ(batch.sequence, 50);
}

TEST(BatchStream, NeverExceedsTheLargestShape) {
  const Dataset dataset = OfLengths({50, 49});
  const BatchStream stream(dataset, {.sequence = 50});
  EXPECT_EQ(stream.shapes().back(), (BatchShape{50, 0}));
}

TEST(BatchStream, ShowsEachExampleOnceAnEpochInANewOrder) {
  const Dataset dataset = OfCount(103);
  BatchStream stream(dataset, {.batch_size = 8});
  const std::vector<int32_t> first = Order(Epoch(stream));
  stream.Seek({1, 0});
  const std::vector<int32_t> second = Order(Epoch(stream));
  EXPECT_NE(first, second);
  for (std::vector<int32_t> order : {first, second}) {
    std::ranges::sort(order);
    for (int i = 0; i < 103; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
}

TEST(BatchStream, RollsOverToTheNextEpoch) {
  const Dataset dataset = OfCount(5);
  BatchStream stream(dataset, {.batch_size = 2});
  Batch batch;
  for (int i = 0; i < 3; ++i) stream.Next(batch);
  EXPECT_EQ(batch.rows, 1);
  EXPECT_EQ(stream.position(), (Position{1, 0}));
  stream.Next(batch);
  EXPECT_EQ(batch.position, (Position{1, 0}));
  EXPECT_EQ(batch.rows, 2);
}

TEST(BatchStream, ResumesToTheBit) {
  const Dataset dataset = OfCount(50);
  const BatchOptions options{.task = Task::kMaskedLm,
                             .batch_size = 4,
                             .group_by_length = true,
                             .masking = {.probability = 0.15F, .mask_id = 3, .vocabulary = 500}};
  BatchStream straight(dataset, options);
  Batch batch;
  for (int i = 0; i < 17; ++i) straight.Next(batch);
  BatchStream resumed(dataset, options);
  resumed.Seek(straight.position());
  Batch again;
  for (int i = 0; i < 20; ++i) {
    straight.Next(batch);
    resumed.Next(again);
    ExpectEqual(batch, again);
  }
}

TEST(BatchStream, GroupsExamplesOfLikeLength) {
  const Dataset dataset = OfCount(400);
  const auto padding = [&](bool grouped) {
    int64_t tokens = 0;
    for (const Batch& batch : Epoch(BatchStream(
             dataset,
             {.batch_size = 8, .group_by_length = grouped, .buckets = 60, .multiple = 1}))) {
      tokens += batch.rows * batch.sequence;
      tokens -= std::accumulate(batch.lengths.begin(), batch.lengths.end(), int64_t{0});
    }
    return tokens;
  };
  EXPECT_LT(padding(true) * 4, padding(false));
}

TEST(BatchStream, BringsTheLongestExampleFirstWhenGrouped) {
  const Dataset dataset = OfCount(400);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    BatchStream stream(dataset, {.batch_size = 8, .group_by_length = true});
    stream.Seek({epoch, 0});
    Batch batch;
    stream.Next(batch);
    EXPECT_EQ(batch.lengths[0], dataset.LongestSequence());
  }
}

TEST(BatchStream, ShiftsTheLabelsOfCausalModels) {
  const Dataset dataset({{.ids = {5, 6, 7}, .labels = {5, 6, 7}}, {.ids = {8}, .labels = {8}}});
  BatchStream stream(dataset, {.task = Task::kCausalLm, .shuffle = false, .multiple = 4});
  Batch batch;
  stream.Next(batch);
  EXPECT_EQ(batch.sequence, 4);
  EXPECT_THAT(batch.labels, ElementsAre(6, 7, -100, -100, -100, -100, -100, -100));
  EXPECT_EQ(batch.targets, 2);
}

TEST(BatchStream, PadsSourceAndTargetOfTranslations) {
  const Dataset dataset({{.ids = {5, 6, 1}, .labels = {8, 1}, .decoder_ids = {2, 8}},
                         {.ids = {5, 1}, .labels = {8, 9, 1}, .decoder_ids = {2, 8, 9}}});
  BatchStream stream(dataset, {.task = Task::kSeq2SeqLm, .shuffle = false, .multiple = 4});
  Batch batch;
  stream.Next(batch);
  EXPECT_EQ(batch.decoder_sequence, 4);
  EXPECT_THAT(batch.decoder_ids, ElementsAre(2, 8, 0, 0, 2, 8, 9, 0));
  EXPECT_THAT(batch.decoder_lengths, ElementsAre(2, 3));
  EXPECT_THAT(batch.labels, ElementsAre(8, 1, -100, -100, 8, 9, 1, -100));
  EXPECT_EQ(batch.targets, 5);
}

TEST(BatchStream, UsesTheSameMemoryAgain) {
  const Dataset dataset = OfLengths({16, 16, 16, 16});
  BatchStream stream(dataset, {.batch_size = 2});
  Batch batch;
  stream.Next(batch);
  const int32_t* const ids = batch.ids.data();
  for (int i = 0; i < 7; ++i) stream.Next(batch);
  EXPECT_EQ(batch.ids.data(), ids);
}

// One example of 200,000 tokens 1000 …, a special one among every ten.
class MaskingTest : public ::testing::Test {
 protected:
  static constexpr int kTokens = 200'000;
  MaskingTest() {
    Example example;
    for (int i = 0; i < kTokens; ++i) example.ids.push_back(i % 10 == 0 ? 101 : 1000 + i % 500);
    example.labels = example.ids;
    dataset_ = Dataset({example});
  }
  Batch Masked(int64_t epoch) {
    BatchStream stream(
        dataset_,
        {.task = Task::kMaskedLm,
         .masking = {
             .probability = 0.15F, .mask_id = 103, .vocabulary = 2000, .special_ids = {101, 102}}});
    stream.Seek({epoch, 0});
    Batch batch;
    stream.Next(batch);
    return batch;
  }
  Dataset dataset_;
};

TEST_F(MaskingTest, HidesFifteenPercentEightyTenTen) {
  const Batch batch = Masked(0);
  int hidden = 0;
  int masked = 0;
  int kept = 0;
  for (size_t i = 0; i < kTokens; ++i) {
    const int32_t original = dataset_[0].ids[i];
    if (batch.labels[i] == kIgnoredLabel) {
      EXPECT_EQ(batch.ids[i], original);
      continue;
    }
    EXPECT_EQ(batch.labels[i], original);
    EXPECT_NE(original, 101);
    ++hidden;
    masked += batch.ids[i] == 103;
    kept += batch.ids[i] == original;
  }
  // Of 180,000 draws and of 27,000: five standard deviations.
  EXPECT_NEAR(hidden, 27'000, 760);
  EXPECT_NEAR(masked, 0.8 * hidden, 330);
  EXPECT_NEAR(kept, 0.1 * hidden, 250);
  EXPECT_EQ(batch.targets, hidden);
}

TEST_F(MaskingTest, HidesOthersInTheNextEpochAndTheSameAgain) {
  EXPECT_EQ(Masked(1).ids, Masked(1).ids);
  EXPECT_NE(Masked(0).labels, Masked(1).labels);
}

TEST(Masking, HidesOneTokenAtLeast) {
  const Dataset dataset({{.ids = {101, 7, 102}, .labels = {101, 7, 102}}});
  BatchStream stream(
      dataset,
      {.task = Task::kMaskedLm,
       .multiple = 1,
       .masking = {
           .probability = 1e-6F, .mask_id = 103, .vocabulary = 200, .special_ids = {101, 102}}});
  Batch batch;
  for (int i = 0; i < 50; ++i) {
    stream.Next(batch);
    EXPECT_THAT(batch.labels, ElementsAre(-100, 7, -100));
  }
}

TEST(Prefetcher, HandsOutWhatTheStreamWould) {
  const Dataset dataset = OfCount(50);
  const BatchOptions options{.batch_size = 4};
  BatchStream straight(dataset, options);
  Prefetcher ahead(BatchStream(dataset, options), 3);
  Batch expected;
  Batch batch;
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(ahead.position(), straight.position());
    straight.Next(expected);
    ahead.Next(batch);
    ExpectEqual(batch, expected);
  }
  EXPECT_GE(ahead.waited_seconds(), 0);
}

TEST(Prefetcher, StopsWhereverItIs) {
  const Dataset dataset = OfCount(50);
  for (int taken = 0; taken < 4; ++taken) {
    for (size_t depth = 1; depth < 4; ++depth) {
      Prefetcher ahead(BatchStream(dataset, {.batch_size = 4}), depth);
      Batch batch;
      for (int i = 0; i < taken; ++i) ahead.Next(batch);
    }
  }
}

}  // namespace
}  // namespace headroom::engine
