// SPDX-License-Identifier: Apache-2.0
//
// A real model, where HEADROOM_MINILM names its folder (scripts/fetch_minilm).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/file.h"
#include "engine/executor.h"
#include "engine/files/weights.h"
#include "engine/initialise.h"
#include "engine/native_step.h"

namespace headroom::engine {
namespace {

constexpr int64_t kSentences = 5;
constexpr int64_t kTokens = 24;
constexpr size_t kWidth = 384;

class Minilm : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("HEADROOM_MINILM");
    if (folder == nullptr) GTEST_SKIP() << "HEADROOM_MINILM names no folder";
    folder_ = folder;
  }

  ModelConfig Config() const {
    Result<std::string> text = ReadFile(folder_ + "/config.json");
    HEADROOM_CHECK(text.ok(), "no config.json");
    Result<ModelConfig> config = ModelConfig::FromJson(*text, "config.json");
    HEADROOM_CHECK(config.ok(), config.error().message);
    return std::move(*config);
  }

  static NativeOptions Options() {
    NativeOptions options;
    options.model.task = Task::kSequenceClassification;
    options.model.rows = {.batch = kSentences, .sequence = kTokens};
    return options;
  }

  std::string folder_;
};

void CopyInput(const SafetensorsReader& from, const NativeStep& step, const Executor& executor,
               const std::string& name) {
  const TensorEntry* entry = from.Find("input/" + name);
  const graph::TensorId id = step.graph().Find(graph::Role::kInput, name);
  std::memcpy(executor.View(id).data, entry->bytes.data(), entry->bytes.size());
}

// Mean over the tokens, normalised, as sentence-transformers' Pooling and Normalize have it.
std::vector<float> Embedding(const float* hidden, int32_t tokens) {
  std::vector<float> mean(kWidth);
  for (int32_t token = 0; token < tokens; ++token) {
    for (size_t i = 0; i < kWidth; ++i) mean[i] += hidden[static_cast<size_t>(token) * kWidth + i];
  }
  float squares = 0;
  for (const float value : mean) squares += value * value;
  for (float& value : mean) value /= std::sqrt(squares);
  return mean;
}

TEST_F(Minilm, EmbedsSentencesAsTransformersDoes) {
  NativeOptions options = Options();
  options.model.head = Head::kHidden;
  Result<NativeStep> step = PlanForward(Config(), options);
  ASSERT_TRUE(step.ok()) << step.error().message;
  const HostArena arena = *HostArena::Create(step->plan.size);
  const Executor executor(step->graph(), step->plan, arena.bytes());
  Result<SafetensorsReader> weights = SafetensorsReader::Open(folder_);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  const Result<LoadedWeights> loaded = LoadWeights(*weights, step->model, executor);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_THAT(loaded->initialised, testing::IsEmpty());
  EXPECT_THAT(loaded->unused, testing::ElementsAre("pooler.dense.bias", "pooler.dense.weight"));

  Result<SafetensorsReader> golden =
      SafetensorsReader::Open(HEADROOM_TEST_DATA "/engine/minilm_sentences.safetensors");
  ASSERT_TRUE(golden.ok());
  for (const char* name : {"input_ids", "token_type_ids", "lengths"}) {
    CopyInput(*golden, *step, executor, name);
  }
  executor.Run(graph::Phase::kForward, {.training = false});
  const auto* lengths =
      executor.View(step->graph().Find(graph::Role::kInput, "lengths")).As<int32_t>();
  const float* hidden = executor.View(step->model.hidden).As<float>();
  std::vector<float> expected(kSentences * kWidth);
  ASSERT_TRUE(
      golden->Read("output/embedding", DType::kFloat32, std::as_writable_bytes(std::span(expected)))
          .ok());
  float worst = 0;
  for (int64_t sentence = 0; sentence < kSentences; ++sentence) {
    const std::vector<float> embedding =
        Embedding(hidden + sentence * kTokens * static_cast<int64_t>(kWidth), lengths[sentence]);
    for (size_t i = 0; i < kWidth; ++i) {
      const float want = expected[static_cast<size_t>(sentence) * kWidth + i];
      worst = std::max(worst, std::fabs(embedding[i] - want));
    }
  }
  std::printf("  worst element: off by %.1e\n", static_cast<double>(worst));
  EXPECT_LT(worst, 1e-6F);
}

// A classifier on top of it learns the five sentences.
TEST_F(Minilm, FineTunes) {
  const ModelConfig config = Config();
  Result<NativeStep> step = PlanTrainingStep(config, Options());
  ASSERT_TRUE(step.ok()) << step.error().message;
  const HostArena arena = *HostArena::Create(step->plan.size);
  const Executor executor(step->graph(), step->plan, arena.bytes());
  InitialiseWeights(config, executor, 1);
  Result<SafetensorsReader> weights = SafetensorsReader::Open(folder_);
  ASSERT_TRUE(weights.ok());
  const Result<LoadedWeights> loaded = LoadWeights(*weights, step->model, executor);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_THAT(loaded->initialised, testing::ElementsAre("classifier.weight", "classifier.bias"));
  Result<SafetensorsReader> golden =
      SafetensorsReader::Open(HEADROOM_TEST_DATA "/engine/minilm_sentences.safetensors");
  ASSERT_TRUE(golden.ok());
  for (const char* name : {"input_ids", "token_type_ids", "lengths"}) {
    CopyInput(*golden, *step, executor, name);
  }
  auto* labels = executor.View(step->graph().Find(graph::Role::kInput, "labels")).As<int32_t>();
  for (int64_t i = 0; i < kSentences; ++i) labels[i] = i < 2 ? 1 : 0;
  StepScalars scalars{.targets = kSentences, .learning_rate = 5e-4F, .max_grad_norm = 1};
  float* loss = executor.View(step->model.loss).As<float>();
  float first = 0;
  for (int i = 0; i < 10; ++i, ++scalars.step) {
    *loss = 0;
    executor.Run(graph::Phase::kForward, scalars);
    executor.Run(graph::Phase::kBackward, scalars);
    executor.Run(graph::Phase::kOptimizer, scalars);
    if (i == 0) first = *loss;
  }
  std::printf("  loss %.3f, after 10 steps %.3f\n", static_cast<double>(first / kSentences),
              static_cast<double>(*loss / kSentences));
  EXPECT_LT(*loss, 0.5F * first);
}

}  // namespace
}  // namespace headroom::engine
