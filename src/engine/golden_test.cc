// SPDX-License-Identifier: Apache-2.0
//
// The engine against PyTorch: what bench/engine_golden.py recorded of a tiny model of each family.
#include "engine/golden.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <utility>

#include "base/check.h"
#include "engine/lazy_device.h"

namespace headroom::engine {
namespace {

Golden Recorded(const std::string& name) {
  Result<Golden> golden = ReadGolden(HEADROOM_TEST_DATA "/engine", name);
  HEADROOM_CHECK(golden.ok(), golden.error().message);
  return std::move(*golden);
}

class GoldenTest : public testing::TestWithParam<std::string> {
 protected:
  const Golden golden_ = Recorded(GetParam());
};

TEST_P(GoldenTest, LossAndEveryGradient) {
  const auto [loss, worst] = LossAndGradients(golden_, GoldenOptions(golden_));
  std::printf("  worst gradient: off by %.1e, %s\n", worst.difference.error, worst.name.c_str());
  EXPECT_LT(loss, kLossBound);
  EXPECT_GT(worst.difference.cosine, kLeastCosine);
  EXPECT_LT(worst.difference.error, kGradientBound) << worst.name;
}

TEST_P(GoldenTest, SixteenBitGradientsPointTheSameWay) {
  for (const bool lean : {false, true}) {
    NativeOptions options = GoldenOptions(golden_);
    options.precision = Precision::kBf16;
    options.lean = lean;
    const auto [loss, worst] = LossAndGradients(golden_, options);
    std::printf("  worst gradient: cosine %.5f, off by %.1e, %s\n", worst.difference.cosine,
                worst.difference.error, worst.name.c_str());
    EXPECT_LT(loss, 0.02);
    EXPECT_GT(worst.difference.cosine, 0.99) << worst.name;
  }
}

TEST_P(GoldenTest, Logits) { EXPECT_LT(LogitsError(golden_), kOutputBound); }

TEST_P(GoldenTest, LastHiddenState) { EXPECT_LT(HiddenError(golden_), kOutputBound); }

TEST_P(GoldenTest, LabelSmoothing) {
  const SmoothedErrors errors = LabelSmoothingErrors(golden_);
  EXPECT_LT(errors.loss, kLossBound);
  EXPECT_LT(errors.gradient, kGradientBound);
}

TEST_P(GoldenTest, TenStepsOfAdamW) {
  const double worst = TenLossesError(golden_);
  std::printf("  worst loss: off by %.1e\n", worst);
  EXPECT_LT(worst, kTenLossesBound);
}

// Everything is copied there and back; planned for CUDA.
TEST_P(GoldenTest, OnADevice) {
  const NativeOptions options = GoldenOptions(golden_);
  LazyDevice gradients("host");
  LazyDevice losses("host");
  LazyDevice logits("host");
  const GradientErrors here = LossAndGradients(golden_, options);
  const GradientErrors there = LossAndGradients(golden_, options, &gradients);
  EXPECT_EQ(there.loss, here.loss);
  EXPECT_EQ(there.gradients.difference.error, here.gradients.difference.error);
  EXPECT_EQ(TenLossesError(golden_, &losses), TenLossesError(golden_));
  EXPECT_EQ(LogitsError(golden_, &logits), LogitsError(golden_));
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTest, testing::ValuesIn(GoldenNames()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headroom::engine
