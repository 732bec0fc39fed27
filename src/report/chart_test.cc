// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "report/chart_text.h"

namespace headroom {
namespace {

PageTimeline Ramp(int samples) {
  PageTimeline timeline;
  PageTimeline::Layer own{"own", {}, {}};
  PageTimeline::Layer others{"others", {}, {}};
  for (int i = 0; i < samples; ++i) {
    timeline.seconds.push_back(i * 0.5);
    own.bytes.push_back(MiB(i == 1 ? 100 : 50));
    others.bytes.push_back(MiB(50));
  }
  timeline.layers = {own, others};
  return timeline;
}

TEST(ChartText, DrawsTheHighestMomentOfEveryColumn) {
  const TextStyle style{.colour = false, .unicode = false, .width = 30};
  EXPECT_EQ(ChartText(Ramp(4), style, 3),
            "      150.0 MiB |    ....\n"
            "                |....####....\n"
            "                |############\n"
            "                0.0 s   1.5 s\n");
}

TEST(ChartText, KeepsASpikeThatLastsOneOfManySamples) {
  const TextStyle style{.colour = false, .unicode = true, .width = 40};
  const std::string chart = ChartText(Ramp(5000), style, 6);
  EXPECT_THAT(chart, testing::HasSubstr("150.0 MiB"));
  EXPECT_THAT(chart, testing::HasSubstr("█"));
}

TEST(ChartText, IsEmptyWithoutSamples) { EXPECT_EQ(ChartText({}, TextStyle{}), ""); }

TEST(ChartText, DrawsASingleSample) {
  const TextStyle style{.colour = false, .unicode = false, .width = 30};
  EXPECT_THAT(ChartText(Ramp(1), style), testing::HasSubstr("0.0 s"));
}

}  // namespace
}  // namespace headroom
