// SPDX-License-Identifier: Apache-2.0
#include "report/measured_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace headroom {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

MeasuredOp Op(std::string module, std::string op, std::string phase, std::string op_class,
              double milliseconds, double flops) {
  const double memory = op_class == "contraction" ? 0 : milliseconds / 1e3;
  return {std::move(module),
          std::move(op),
          std::move(phase),
          std::move(op_class),
          {.seconds = milliseconds / 1e3,
           .flops = flops,
           .bytes = 1e9,
           .roofline_seconds = milliseconds / 2e3,
           .memory_seconds = memory,
           .ops = 1}};
}

// Two layers: a product and a norm each, and an update of all. 20 ms.
MeasuredOpsReport Report() {
  MeasuredOpsReport report;
  report.model = "tiny";
  report.parameters = 1234;
  report.recipe = {"causal-lm"};
  report.device = "NVIDIA H200";
  report.rates = DeviceRates{"H200", 989e12, 4.8e12};
  report.replayed_seconds = 0.018;
  report.arena = MiB(3);
  report.runs = 7;
  report.ops = {Op("h.0.mlp", "linear", "forward", "contraction", 2, 1e12),
                Op("h.0.ln", "norm", "forward", "normalization", 1, 1e9),
                Op("h.1.mlp", "linear", "forward", "contraction", 2, 1e12),
                Op("h.1.mlp", "linear_backward_input", "backward", "contraction", 4, 1e12),
                Op("h.0.mlp", "linear_backward_input", "backward", "contraction", 6, 1e12),
                Op("", "update", "optimizer", "elementwise", 5, 1e9)};
  return report;
}

TEST(MeasuredOps, SumsEveryOpOnceInEachTable) {
  const MeasuredOpsReport report = Report();
  for (const auto& table : {CellsOf(report), PhasesOf(report), ClassesOf(report)}) {
    MeasuredLine sum;
    for (const MeasuredCell& cell : table) sum += cell.line;
    EXPECT_NEAR(sum.seconds, 0.020, 1e-12);
    EXPECT_NEAR(sum.flops, 4.002e12, 1);
    EXPECT_EQ(sum.ops, 6);
  }
  EXPECT_EQ(CellsOf(report).size(), 4U);
  EXPECT_EQ(ClassesOf(report)[0].op_class, "contraction");
  EXPECT_DOUBLE_EQ(BackwardOverForward(report), 2);
}

TEST(MeasuredOps, TakesTheLayersOfAStackTogether) {
  const std::vector<MeasuredOp> largest = LargestOf(Report(), 2);
  ASSERT_EQ(largest.size(), 2U);
  EXPECT_EQ(largest[0].module, "h.*.mlp");
  EXPECT_EQ(largest[0].op, "linear_backward_input");
  EXPECT_NEAR(largest[0].line.seconds, 0.010, 1e-12);
  EXPECT_EQ(largest[0].line.ops, 2);
  EXPECT_EQ(largest[1].op, "update");
}

TEST(MeasuredOps, SaysHowFarFromTheRooflineAndFromTheReplayedStep) {
  const std::string text = MeasuredOpsText(Report(), {});
  EXPECT_THAT(text, HasSubstr("One optimizer step, measured on the NVIDIA H200"));
  EXPECT_THAT(text, HasSubstr("roofline"));
  EXPECT_THAT(text, HasSubstr("  contraction         14.0  70.0 %   4,000   4.00     286    286"));
  EXPECT_THAT(text, HasSubstr("Backward takes 2.00 times as long as forward."));
  EXPECT_THAT(text, HasSubstr("the step takes 18.0 ms: 10.0 % less"));
  EXPECT_THAT(text, HasSubstr("30 % of the time goes to ops that the H200's memory bounds"));
  for (size_t start = 0; start < text.size(); start = text.find('\n', start) + 1) {
    EXPECT_LE(text.find('\n', start) - start, 80U) << text.substr(start, 90);
  }
}

TEST(MeasuredOps, ComparesBackwardWithAForwardWithoutItsLossToo) {
  MeasuredOpsReport report = Report();
  report.ops.push_back(Op("wte", "linear_loss", "forward", "contraction", 15, 1e12));
  EXPECT_DOUBLE_EQ(BackwardOverForward(report), 0.5);
  EXPECT_DOUBLE_EQ(BackwardOverForward(report, kLinearLoss), 2);
  EXPECT_THAT(MeasuredOpsText(report, {}),
              HasSubstr("Backward takes 0.50 times as long as forward, 2.00 times without"));
}

TEST(MeasuredOps, LeavesOutWhatAnUnknownDeviceDoesNotTell) {
  MeasuredOpsReport report = Report();
  report.device = "CPU";
  report.rates.reset();
  report.replayed_seconds.reset();
  const std::string text = MeasuredOpsText(report, {});
  EXPECT_THAT(text, Not(HasSubstr("roofline")));
  EXPECT_THAT(text, Not(HasSubstr("CUDA")));
  const auto json = nlohmann::json::parse(MeasuredOpsJson(report));
  EXPECT_TRUE(json["device"]["product_flops"].is_null());
  EXPECT_TRUE(json["total"]["roofline_share"].is_null());
  EXPECT_TRUE(json["step"]["replayed_seconds"].is_null());
  EXPECT_EQ(json["ops"].size(), 6U);
}

TEST(MeasuredOps, JsonHasSharesAndRates) {
  const auto json = nlohmann::json::parse(MeasuredOpsJson(Report()));
  EXPECT_DOUBLE_EQ(json["total"]["roofline_share"].get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(json["phases"][2]["share"].get<double>(), 0.25);
  EXPECT_DOUBLE_EQ(json["phases"][2]["bytes_per_second"].get<double>(), 200e9);
  EXPECT_DOUBLE_EQ(json["step"]["replayed_seconds"].get<double>(), 0.018);
  EXPECT_EQ(json["ops"][3]["class"], "contraction");
}

}  // namespace
}  // namespace headroom
