// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/json.h"
#include "report/score_report.h"
#include "report/score_text.h"

namespace headroom {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

ScoreRow Row(const std::string& id, int64_t measured, int64_t predicted) {
  ScoreRow row;
  row.id = id;
  row.parameters = {"parameters", 100, 100};
  row.after_model = {"model loaded", 400, 400};
  row.allocated = {"allocated", measured, predicted};
  row.reserved = {"reserved", measured, measured};
  row.phases = {{"step 1 forward_end allocated", 1000, 1000},
                {"step 1 forward_end peak", 1000, predicted}};
  return row;
}

ScoreReport Report() {
  ScoreReport report;
  report.rows = {Row("a", 1000, 1000), Row("b", 1000, 1004), Row("c", 1000, 980)};
  report.skipped = {
      {"d", "albert", "architecture"}, {"e", "llama", "LoRA"}, {"f", "llama", "generation"}};
  return report;
}

TEST(Score, CountsEveryRow) {
  const ScoreSummary summary = Summarize(Report());
  EXPECT_EQ(summary.rows, 6);
  EXPECT_EQ(summary.supported, 3);
  EXPECT_EQ(summary.unsupported.at("llama"), 2);
  EXPECT_EQ(summary.params_exact, 3);
}

TEST(Score, SummarizesAbsoluteErrors) {
  const ErrorSummary allocated = Summarize(Report()).allocated;
  EXPECT_EQ(allocated.exact, 1);
  EXPECT_DOUBLE_EQ(allocated.median, 0.004);
  EXPECT_DOUBLE_EQ(allocated.p95, 0.02);
  EXPECT_DOUBLE_EQ(allocated.max, 0.02);
  EXPECT_EQ(allocated.under_1pct, 1);
  EXPECT_EQ(Summarize(Report()).device.rows, 0);
}

TEST(Score, MedianOfEvenCountIsTheMiddle) {
  ScoreReport report = Report();
  report.rows.push_back(Row("g", 1000, 1000));
  EXPECT_DOUBLE_EQ(Summarize(report).allocated.median, 0.002);
}

TEST(Score, NearestRankOf95Percent) {
  ScoreReport report;
  for (int i = 1; i <= 20; ++i) report.rows.push_back(Row("r", 1000, 1000 + i));
  EXPECT_DOUBLE_EQ(Summarize(report).allocated.p95, 0.019);
}

TEST(Score, PhaseErrorIsThatOfTheWorstPhase) {
  EXPECT_EQ(Summarize(Report()).phase_allocated.exact, 1);
  EXPECT_EQ(Report().rows[2].WorstPhase()->what, "step 1 forward_end peak");
}

TEST(Score, WorstComesFirstAndExactIsLeftOut) {
  const std::vector<WorstComparison> worst = Worst(Report(), 3);
  ASSERT_EQ(worst.size(), 3u);
  EXPECT_EQ(worst[0].id, "c");
  EXPECT_EQ(worst[2].id, "b");
}

TEST(Score, JsonHasTheDocumentedShape) {
  const Json json = Json::parse(ScoreJson(Report()));
  EXPECT_EQ(json["rows"], 6);
  EXPECT_EQ(json["supported"], 3);
  EXPECT_EQ(json["unsupported"]["albert"], 1);
  EXPECT_EQ(json["params_exact"], 3);
  for (const char* what : {"allocated", "reserved", "device", "phase_allocated"}) {
    for (const char* key : {"exact", "median", "p95", "max", "under_1pct"}) {
      EXPECT_TRUE(json[what].contains(key)) << what << "." << key;
    }
  }
  EXPECT_EQ(json["worst"][0]["id"], "c");
  EXPECT_EQ(json["worst"][0]["measured"], 1000);
}

TEST(Score, JudgesVerdictsAtTheBoundary) {
  ScoreReport report = Report();
  report.rows[0].fit = FitComparison{{"boundary", 1000, 1008}, false, false};
  report.rows[1].fit = FitComparison{{"boundary", 1000, 980}, true, false};
  const FitSummary fit = Summarize(report).fit;
  EXPECT_EQ(fit.rows, 2);
  EXPECT_EQ(fit.false_fits, 1);
  EXPECT_EQ(fit.false_refusals, 0);
  EXPECT_DOUBLE_EQ(fit.boundary.median, 0.014);
  const Json json = Json::parse(ScoreJson(report));
  EXPECT_EQ(json["fit"]["rows"], 2);
  EXPECT_DOUBLE_EQ(json["fit"]["boundary"]["max"].get<double>(), 0.02);
  const std::string text = ScoreText(report, ScoreDetail::kLines, {});
  EXPECT_THAT(text, HasSubstr("false fit"));
  EXPECT_THAT(text, HasSubstr("2 rows, 1 false fits, 0 false refusals"));
}

TEST(Score, SaysNothingOfBoundariesThatNobodyMeasured) {
  EXPECT_TRUE(Json::parse(ScoreJson(Report()))["fit"].is_null());
}

TEST(Score, MeasuredZeroIsNoDivisionByZero) {
  ScoreReport report;
  report.rows = {Row("z", 0, 5)};
  EXPECT_TRUE(Json::parse(ScoreJson(report))["allocated"]["max"].is_null());
  EXPECT_THAT(ScoreText(report, ScoreDetail::kLines, {}), HasSubstr("new"));
}

TEST(Score, TextListsRowsWorstFirstWithinTheWidth) {
  ScoreReport report = Report();
  report.rows[1].id = std::string(60, 'n');
  const std::string text = ScoreText(report, ScoreDetail::kLines, {});
  EXPECT_LT(text.find("\nc "), text.find("\na "));
  EXPECT_THAT(text, HasSubstr("-2.00%"));
  EXPECT_THAT(text, HasSubstr("LoRA: llama 1."));
  for (size_t start = 0; start < text.size();) {
    const size_t end = text.find('\n', start);
    EXPECT_LE(end - start, 80u) << text.substr(start, end - start);
    start = end + 1;
  }
}

TEST(Score, PhaseDetailPrintsEveryComparison) {
  EXPECT_THAT(ScoreText(Report(), ScoreDetail::kPhases, {}), HasSubstr("step 1 forward_end peak"));
}

TEST(Score, NothingScoredIsSaid) {
  EXPECT_THAT(ScoreText({}, ScoreDetail::kLines, {}), HasSubstr("0 rows"));
}

}  // namespace
}  // namespace headroom
