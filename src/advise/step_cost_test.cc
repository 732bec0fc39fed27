// SPDX-License-Identifier: Apache-2.0
#include "advise/step_cost.h"

#include <gtest/gtest.h>

#include "advise/op_profile.h"
#include "predict/predict.h"

namespace headroom {
namespace {

Gpu H200() { return MeasuredPlatform().gpu; }

TEST(StepCost, TakesTheLongerOfArithmeticAndTraffic) {
  const Rates rates{100, 10};
  EXPECT_DOUBLE_EQ(RooflineSeconds({OpClass::kContraction, 200, 5, 5, DType::kFloat32}, rates), 2);
  EXPECT_DOUBLE_EQ(RooflineSeconds({OpClass::kContraction, 20, 25, 5, DType::kFloat32}, rates), 3);
}

TEST(StepCost, UsesTheUnitsOfThePrecision) {
  const Gpu gpu = H200();
  const auto flops = [&](Precision precision, OpClass op_class, DType dtype) {
    return PeakRates(gpu, precision, op_class, dtype).flops;
  };
  EXPECT_EQ(flops(Precision::kBf16, OpClass::kContraction, DType::kBFloat16), gpu.bf16_flops);
  EXPECT_EQ(flops(Precision::kTf32, OpClass::kContraction, DType::kFloat32), gpu.tf32_flops);
  EXPECT_EQ(flops(Precision::kFp32, OpClass::kContraction, DType::kFloat32), gpu.fp32_flops);
  EXPECT_EQ(flops(Precision::kBf16, OpClass::kNormalization, DType::kBFloat16), gpu.fp32_flops);
}

TEST(StepCost, RepeatsMicroBatchesAndNotTheOptimizer) {
  CostMeter meter(H200(), Precision::kFp32);
  // Two steps of three micro-batches each.
  for (int step = 0; step < 2; ++step) {
    for (int micro = 0; micro < 3; ++micro) {
      meter.OnOp({"aten::mm", "", "forward", {OpClass::kContraction, 10, 0, 0, DType::kFloat32}});
    }
    meter.OnOp(
        {"optimizer.step", "", "optimizer", {OpClass::kElementwise, 7, 0, 0, DType::kFloat32}});
  }
  EXPECT_DOUBLE_EQ(meter.Step(2, 3, 3).flops, 37);
  EXPECT_DOUBLE_EQ(meter.Step(2, 3, 12).flops, 127);
  EXPECT_DOUBLE_EQ(meter.Step(2, 3, 12).kernels, 13);
}

TEST(StepCost, WaitsForTheHost) {
  EXPECT_DOUBLE_EQ((StepCost{1, 1, 1e-6, 3, 1000}).seconds(), 3);
  EXPECT_DOUBLE_EQ((StepCost{1, 1, 4, 3, 1000}).seconds(), 4);
}

TEST(OpProfile, CountsTheLayersOfAStackAsOne) {
  OpProfile profile(H200(), Precision::kFp32);
  for (const char* module : {"encoder.layer.0.dense", "encoder.layer.11.dense"}) {
    profile.OnOp(
        {"aten::mm", module, "forward", {OpClass::kContraction, 10, 8, 0, DType::kFloat32}});
  }
  profile.AverageOver(2);
  const std::vector<OpGroup> largest = profile.Largest(5);
  ASSERT_EQ(largest.size(), 1u);
  EXPECT_EQ(largest[0].module, "encoder.layer.*.dense");
  EXPECT_DOUBLE_EQ(largest[0].totals.flops, 10);
  EXPECT_DOUBLE_EQ(largest[0].totals.kernels, 1);
  EXPECT_DOUBLE_EQ(profile.Sum().bytes, 8);
  EXPECT_DOUBLE_EQ(profile.Cell(OpPhase::kForward, OpClass::kContraction).intensity(), 1.25);
}

}  // namespace
}  // namespace headroom
