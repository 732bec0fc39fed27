// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "report/diff_report.h"
#include "report/explain_report.h"
#include "report/explain_text.h"
#include "report/json.h"
#include "report/oom_report.h"
#include "report/snapshot_export.h"

namespace headroom {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

struct Sizes {
  Bytes activations = MiB(40);
  Bytes scores = MiB(0);
};

// Two steps: weights, activations, gradients and Adam's state.
Ledger TwoSteps(const Sizes& sizes) {
  Ledger ledger;
  const ModuleId layer = ledger.InternModule("layer");
  const OpId mm = ledger.InternOp("aten::mm");
  ledger.ChangeReserved(MiB(500));
  ledger.Alloc(MiB(10), Component::kWeights, Kind::kOther, layer, OpId{});
  ledger.Mark("train_begin", 0);
  for (int step = 1; step <= 2; ++step) {
    const BlockId kept =
        ledger.Alloc(sizes.activations, Component::kActivations, Kind::kMlp, layer, mm);
    const BlockId scores =
        ledger.Alloc(sizes.scores, Component::kActivations, Kind::kAttentionScores, layer, mm);
    ledger.Mark("forward_end", step);
    const BlockId gradient = ledger.Alloc(MiB(10), Component::kGradients, Kind::kOther, layer, mm);
    ledger.Free(kept);
    ledger.Free(scores);
    ledger.Mark("backward_end", step);
    if (step == 1) ledger.Alloc(MiB(20), Component::kOptimizer, Kind::kOther, layer, OpId{});
    ledger.Mark("optimizer_end", step);
    ledger.Free(gradient);
    ledger.Mark("step_end", step);
  }
  return ledger;
}

PlanReport RunOf(const Sizes& sizes) { return BuildPlanReport(TwoSteps(sizes), PlanHeader()); }

DiffRun Side(std::string name, const Sizes& sizes) {
  return {.name = std::move(name), .report = RunOf(sizes)};
}

DiffRun WatchedSide(Bytes device) {
  DiffRun run{.name = "run.json", .watched = true, .peak = "Peak after 1.50 s on GPU 0."};
  run.report.device = device;
  return run;
}

ExplainReport ReportOf(const Sizes& sizes) {
  ExplainReport report;
  report.name = "run.pickle";
  report.has_history = true;
  report.trains = true;
  report.run = RunOf(sizes);
  report.steps = StepRows(report.run);
  return report;
}

TEST(ExplainReport, FoldsMarksIntoOneRowAStep) {
  const std::vector<StepRow> rows = StepRows(RunOf({}));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].forward, MiB(50));
  EXPECT_EQ(rows[0].backward, MiB(60));
  EXPECT_EQ(rows[0].optimizer, MiB(40));
  EXPECT_EQ(rows[1].forward, MiB(70));
  EXPECT_EQ(rows[1].backward, MiB(80));
  EXPECT_EQ(rows[1].end, MiB(30));
}

TEST(ExplainReport, OffersTheLargestAvoidablePartFirst) {
  const std::vector<Remedy> few = FindRemedies(ReportOf({}));
  ASSERT_FALSE(few.empty());
  EXPECT_THAT(few[0].change, HasSubstr("gradient_checkpointing=True"));
  EXPECT_EQ(few[0].saves, MiB(40));
  const std::vector<Remedy> eager = FindRemedies(ReportOf({.scores = MiB(300)}));
  ASSERT_FALSE(eager.empty());
  EXPECT_THAT(eager[0].change, HasSubstr("sdpa"));
  EXPECT_EQ(eager[0].saves, MiB(300));
}

TEST(ExplainReport, OffersNothingThatTrainsToARunThatDoesNot) {
  ExplainReport report = ReportOf({});
  report.trains = false;
  EXPECT_TRUE(FindRemedies(report).empty());
}

TEST(ExplainText, SaysTheVerdictFirst) {
  const std::string text = ExplainText(ReportOf({.scores = MiB(300)}), TextStyle());
  const size_t verdict = text.find("Memory peaks at 380.0 MiB in step 2, backward: activations");
  ASSERT_NE(verdict, std::string::npos);
  EXPECT_LT(verdict, text.find("component"));
  EXPECT_THAT(VerdictSentences(ReportOf({.scores = MiB(300)})).front(),
              HasSubstr("(300.0 MiB of it attention scores)"));
  EXPECT_THAT(text, Not(HasSubstr("context")));
}

TEST(ExplainText, KeepsToTheWidth) {
  ExplainReport report = ReportOf({});
  report.holders.push_back({std::string(300, 'x'), Component::kWeights, Kind::kOther, MiB(1), 1});
  const std::string text = ExplainText(report, TextStyle());
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    EXPECT_LE(end - at, 80U) << text.substr(at, end - at);
    at = end + 1;
  }
}

TEST(DiffReader, ReadsWhatPlanAndExplainWrite) {
  const DiffRun written = Side("plan.json", {.activations = MiB(100)});
  for (const std::string& json :
       {PlanJson(written.report), ExplainJson(ReportOf({.activations = MiB(100)}))}) {
    const Result<std::optional<DiffRun>> read = DiffRunFromJson(json, "plan.json");
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_TRUE(read->has_value());
    const DiffReport diff = BuildDiff(written, **read);
    EXPECT_EQ(LargestDifference(diff), 0.0);
    EXPECT_EQ(diff.phases.size(), written.report.phases.size());
    for (const Change& kind : diff.kinds()) EXPECT_TRUE(kind.known() && kind.delta() == Bytes(0));
    EXPECT_EQ(diff.kinds()[static_cast<size_t>(Kind::kMlp)].b, MiB(100));
    for (const NamedChange& module : diff.modules) EXPECT_EQ(module.change.delta(), Bytes(0));
  }
}

TEST(DiffReader, NamesWhatIsMissing) {
  Json json = Json::parse(PlanJson(Side("a", {}).report));
  json["peak"].erase("op");
  const auto without = DiffRunFromJson(json.dump(), "plan.json");
  ASSERT_FALSE(without.ok());
  EXPECT_THAT(without.error().message, HasSubstr("plan.json: \"op\" is missing"));
  json["totals"]["allocated"] = uint64_t{1} << 63U;
  EXPECT_FALSE(DiffRunFromJson(json.dump(), "plan.json").ok());
  for (const char* other : {"", "a log", "{", "[]", R"({"totals": 1})"}) {
    const auto read = DiffRunFromJson(other, "x");
    EXPECT_TRUE(read.ok() && !read->has_value()) << other;
  }
}

TEST(ExplainText, SaysInOneSentenceThatAFileHoldsNothing) {
  ExplainReport report;
  report.name = "empty.pickle";
  report.facts = {"0 events"};
  EXPECT_EQ(ExplainText(report, TextStyle()),
            "empty.pickle\n0 events\n\n"
            "The file holds no memory: neither a segment nor an event.\n");
}

TEST(ExplainJson, HasTheShapeOfAPlanAndMore) {
  const Json json = Json::parse(ExplainJson(ReportOf({})));
  EXPECT_EQ(json["totals"]["allocated"], MiB(80).count());
  EXPECT_TRUE(json["totals"]["device"].is_null());
  EXPECT_EQ(json["peak"]["components"]["optimizer"], MiB(20).count());
  EXPECT_EQ(json["phases"].size(), 9U);
  EXPECT_EQ(json["steps"].size(), 2U);
  EXPECT_EQ(json["unexplained"], 0);
  EXPECT_TRUE(json.contains("final"));
}

TEST(Diff, FindsWhatGrewAndWhy) {
  const DiffReport diff =
      BuildDiff(Side("a", {}), Side("b", {.activations = MiB(100), .scores = MiB(0)}));
  EXPECT_EQ(diff.allocated.delta(), MiB(60));
  EXPECT_EQ(DiffVerdict(diff),
            "B peaks 60.0 MiB (42.86 %) above A: activations +60.0 MiB (MLP +60.0 MiB).");
  EXPECT_DOUBLE_EQ(LargestDifference(diff).value(), 60.0 / 140);
  ASSERT_EQ(diff.phases.size(), 9U);
  EXPECT_EQ(diff.phases[1].peak.delta(), MiB(60));
  EXPECT_THAT(DiffText(diff, TextStyle()), HasSubstr("+60.0"));
  const Json json = Json::parse(DiffJson(diff));
  EXPECT_EQ(json["components"]["activations"]["delta"], MiB(60).count());
}

TEST(Diff, IsEmptyBetweenARunAndItself) {
  const DiffReport diff = BuildDiff(Side("a", {}), Side("b", {}));
  EXPECT_EQ(LargestDifference(diff).value(), 0);
  EXPECT_THAT(DiffVerdict(diff), StartsWith("Both peak at 80.0 MiB, equal to the byte"));
}

TEST(Diff, CallsUnknownWhatAWatchedProcessDoesNotTell) {
  const DiffReport diff = BuildDiff(Side("plan.json", {}), WatchedSide(MiB(900)));
  EXPECT_THAT(DiffVerdict(diff), HasSubstr("400.0 MiB more than the allocator of A reserves"));
  const std::string text = DiffText(diff, TextStyle());
  EXPECT_THAT(text, HasSubstr("unknown"));
  EXPECT_THAT(text, HasSubstr("Peak after 1.50 s on GPU 0."));
  const Json json = Json::parse(DiffJson(diff));
  EXPECT_TRUE(json["largest_difference"].is_null());
  EXPECT_EQ(json["components"]["weights"]["a"], MiB(10).count());
  EXPECT_TRUE(json["components"]["weights"]["b"].is_null());
  EXPECT_TRUE(json["totals"]["allocated"]["delta"].is_null());
  EXPECT_EQ(json["totals"]["device"]["b"], MiB(900).count());
  EXPECT_TRUE(json["kinds"]["mlp"]["b"].is_null());
}

TEST(Diff, CallsUnknownWhatARecordingDoesNotTell) {
  DiffRun plan = Side("plan.json", {});
  plan.report.device = MiB(1000);
  plan.report.peak.components[static_cast<size_t>(Component::kContext)] = MiB(500);
  DiffRun recording = Side("a.pickle", {});
  recording.kinds_known = false;
  const Json json = Json::parse(DiffJson(BuildDiff(plan, recording)));
  EXPECT_EQ(json["totals"]["device"]["a"], MiB(1000).count());
  EXPECT_TRUE(json["totals"]["device"]["b"].is_null());
  EXPECT_TRUE(json["components"]["context"]["b"].is_null());
  EXPECT_TRUE(json["components"]["context"]["delta"].is_null());
  EXPECT_TRUE(json["kinds"]["mlp"]["b"].is_null());
  EXPECT_EQ(json["totals"]["allocated"]["delta"], 0);
}

TEST(Diff, ComparesTheDeviceOfAWatchedProcessWithThatOfAPlan) {
  DiffRun plan = Side("plan.json", {});
  plan.report.device = MiB(1000);
  const DiffReport diff = BuildDiff(plan, WatchedSide(MiB(1010)));
  EXPECT_THAT(DiffVerdict(diff),
              StartsWith("B holds 1,010.0 MiB of the device at most, 10.0 MiB (0.99 %) more"));
  EXPECT_EQ(Json::parse(DiffJson(diff))["totals"]["device"]["delta"], MiB(10).count());
}

TEST(Diff, IsSymmetricButForTheSign) {
  const DiffReport ab = BuildDiff(Side("a", {}), Side("b", {.scores = MiB(7)}));
  const DiffReport ba = BuildDiff(Side("b", {.scores = MiB(7)}), Side("a", {}));
  for (size_t i = 0; i < ab.components.size(); ++i) {
    EXPECT_EQ(ab.components[i].delta(), -ba.components[i].delta());
  }
}

TEST(OomText, ShowsOnlyWhatTheMessageHolds) {
  OomReport report;
  report.name = "log";
  report.requested = MiB(20);
  report.causes = {"The message says no more."};
  const std::string text = OomText(report, TextStyle());
  EXPECT_THAT(text, HasSubstr("Out of memory, asking for 20.0 MiB."));
  EXPECT_THAT(text, Not(HasSubstr("reserved")));
  const Json json = Json::parse(OomJson(report));
  EXPECT_EQ(json["requested"], MiB(20).count());
  EXPECT_TRUE(json["totals"]["allocated"].is_null());
}

TEST(ChromeTrace, IsJsonWithAPhaseAMarkAndACounterAnEvent) {
  const Ledger ledger = TwoSteps({});
  const Json json = Json::parse(ChromeTrace(ledger));
  int slices = 0;
  int counters = 0;
  for (const Json& event : json["traceEvents"]) {
    slices += event["ph"] == "X" ? 1 : 0;
    if (event["ph"] != "C") continue;
    ++counters;
    int64_t sum = 0;
    for (const auto& [name, bytes] : event["args"].items()) sum += bytes.get<int64_t>();
    EXPECT_EQ(sum, MiB(500).count());  // components and cache are what is reserved
  }
  EXPECT_EQ(slices, 9);
  EXPECT_EQ(counters + 9, static_cast<int>(ledger.events().size()));
}

}  // namespace
}  // namespace headroom
