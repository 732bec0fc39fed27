// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "report/train_report.h"

namespace headroom {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(TrainText, SetsMeasuredBesidePlanned) {
  TrainSummary summary;
  summary.memory = {{"arena", "= arena", MiB(128), MiB(128)},
                    {"process_growth", "growth of the process", std::nullopt, MiB(140)}};
  const std::string text = TrainText(summary, {});
  EXPECT_THAT(text, HasSubstr("= arena                  128.0     128.0\n"));
  EXPECT_THAT(text, HasSubstr("growth of the process              140.0\n"));
}

TEST(TrainText, SaysHowManyStepsOverflowed) {
  TrainSummary summary;
  EXPECT_THAT(TrainText(summary, {}), Not(HasSubstr("overflowed")));
  summary.skipped_steps = 1;
  EXPECT_THAT(TrainText(summary, {}), HasSubstr("1 step whose gradients overflowed"));
  summary.skipped_steps = 2;
  EXPECT_THAT(TrainText(summary, {}), HasSubstr("2 steps whose gradients overflowed"));
}

TEST(LossText, StaysShortWhereItWentAstray) {
  EXPECT_EQ(LossText(5.83241), "5.8324");
  EXPECT_EQ(LossText(1.0077e15), "1.008e+15");
  EXPECT_EQ(LossText(-std::nan("")), "not a number");
}

}  // namespace
}  // namespace headroom
