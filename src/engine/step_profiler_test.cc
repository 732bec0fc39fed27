// SPDX-License-Identifier: Apache-2.0
#include "engine/step_profiler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/tiny_models.h"

namespace headroom::engine {
namespace {

TrainOptions OptionsOf(const TinyModel& model) {
  TrainOptions options;
  options.task = model.task;
  options.per_device_train_batch_size = 2;
  options.sequence_length = 12;
  options.target_sequence_length = model.task == Task::kSeq2SeqLm ? 10 : 0;
  return options;
}

StepProfiler PlanOf(const TinyModel& model, const TrainOptions& options) {
  const Result<ModelConfig> config = ModelConfig::FromJson(model.config, model.name);
  HEADROOM_CHECK(config.ok(), config.error().message);
  Result<StepProfiler> profiler = StepProfiler::Plan(*config, options);
  HEADROOM_CHECK(profiler.ok(), profiler.error().message);
  return std::move(*profiler);
}

bool Always(std::string_view, int, int) { return true; }

TEST(StepProfiler, TimesEveryOpOfEveryFamily) {
  for (const TinyModel& model : TinyModels()) {
    SCOPED_TRACE(model.name);
    StepProfiler profiler = PlanOf(model, OptionsOf(model));
    ASSERT_TRUE(profiler.Start(nullptr).ok());
    const auto profile = profiler.Run(&Always);
    ASSERT_TRUE(profile.ok());
    ASSERT_TRUE(profile->has_value());
    EXPECT_EQ((*profile)->seconds.size(), profiler.graph().ops().size());
    EXPECT_GT(*std::ranges::min_element((*profile)->seconds), 0);
    EXPECT_FALSE((*profile)->replayed_seconds.has_value());
    EXPECT_EQ((*profile)->runs, 7);
  }
}

TEST(StepProfiler, EndsWhenAsked) {
  const TinyModel model = TinyModels().front();
  StepProfiler profiler = PlanOf(model, OptionsOf(model));
  ASSERT_TRUE(profiler.Start(nullptr).ok());
  size_t asked = 0;
  const auto profile = profiler.Run([&](std::string_view, int, int) { return ++asked < 5; });
  ASSERT_TRUE(profile.ok());
  EXPECT_FALSE(profile->has_value());
  EXPECT_EQ(asked, 5U);
}

// A window of 64 micro-steps has all but the optimizer 64 times: long enough that no noise of the
// machine hides it.
TEST(StepProfiler, CountsEveryMicroStepOfAWindow) {
  const TinyModel model = TinyModels().front();
  const auto micro_seconds = [&](int64_t accumulation) {
    TrainOptions options = OptionsOf(model);
    options.gradient_accumulation_steps = accumulation;
    StepProfiler profiler = PlanOf(model, options);
    HEADROOM_CHECK(profiler.Start(nullptr).ok(), "no arena");
    const StepProfile profile = **profiler.Run(&Always);
    double sum = 0;
    for (size_t i = 0; i < profile.seconds.size(); ++i) {
      const bool optimizer = profiler.graph().ops()[i].phase == graph::Phase::kOptimizer;
      if (!optimizer) sum += profile.seconds[i];
    }
    return sum;
  };
  EXPECT_GT(micro_seconds(64), 8 * micro_seconds(1));
}

}  // namespace
}  // namespace headroom::engine
