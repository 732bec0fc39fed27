// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/grad_scaler.h"

namespace headroom::engine {
namespace {

// The values that transformers' get_linear_schedule_with_warmup(…, 2, 10) yields for lr 1.
TEST(Schedule, LinearRisesFromZeroAndFallsToZero) {
  const Schedule schedule{.learning_rate = 1, .warmup_steps = 2, .max_steps = 10};
  EXPECT_DOUBLE_EQ(schedule.At(1), 0);
  EXPECT_DOUBLE_EQ(schedule.At(2), 0.5);
  EXPECT_DOUBLE_EQ(schedule.At(3), 1);
  EXPECT_DOUBLE_EQ(schedule.At(7), 0.5);
  EXPECT_DOUBLE_EQ(schedule.At(11), 0);
}

TEST(Schedule, CosineIsHalfWayInTheMiddle) {
  const Schedule schedule{
      .kind = ScheduleKind::kCosine, .learning_rate = 2, .warmup_steps = 0, .max_steps = 8};
  EXPECT_DOUBLE_EQ(schedule.At(1), 2);
  EXPECT_DOUBLE_EQ(schedule.At(5), 1);
  EXPECT_NEAR(schedule.At(9), 0, 1e-12);
}

// d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)
TEST(Schedule, NoamPeaksAtTheEndOfTheWarmUp) {
  const Schedule schedule{.kind = ScheduleKind::kNoam,
                          .learning_rate = 1,
                          .warmup_steps = 4000,
                          .max_steps = 100'000,
                          .d_model = 512};
  const double peak = std::pow(512.0, -0.5) * std::pow(4000.0, -0.5);
  EXPECT_NEAR(schedule.At(4000), peak, 1e-15);
  EXPECT_NEAR(schedule.At(1), peak / 4000, 1e-15);
  EXPECT_NEAR(schedule.At(16'000), peak / 2, 1e-15);
}

TEST(GradScaler, BacksOffAndGrows) {
  GradScaler scaler;
  scaler.growth_interval = 3;
  scaler.Update(true);
  EXPECT_EQ(scaler.scale, 32768);
  for (int i = 0; i < 3; ++i) scaler.Update(false);
  EXPECT_EQ(scaler.scale, 65536);
  EXPECT_EQ(scaler.growth_tracker, 0);
}

}  // namespace
}  // namespace headroom::engine
