// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "report/json.h"
#include "report/module_tree.h"
#include "report/plan_report.h"
#include "report/plan_text.h"

namespace headroom {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// Two steps of a model of four equal layers and a head; the peak is in step 2's backward.
Ledger TrainingRun() {
  Ledger ledger;
  ledger.SetContext({{"CUDA context", MiB(518)}, {"cuBLAS", MiB(240)}});
  const OpId mm = ledger.InternOp("aten::mm");
  const OpId adam = ledger.InternOp("aten::_fused_adamw_");
  const auto layer = [&](int i) {
    return ledger.InternModule("bert.encoder.layer." + std::to_string(i) + ".dense");
  };
  const ModuleId head = ledger.InternModule("classifier");
  ledger.ChangeReserved(MiB(100));
  for (int i = 0; i < 4; ++i) {
    ledger.Alloc(MiB(20), Component::kWeights, Kind::kOther, layer(i), OpId{});
  }
  ledger.Alloc(MiB(1), Component::kWeights, Kind::kOther, head, OpId{});
  ledger.Mark("train_begin", 0);
  ledger.ChangeReserved(MiB(200));
  for (int step = 1; step <= 2; ++step) {
    ledger.Mark("step_begin", step);
    std::vector<BlockId> saved;
    for (int i = 0; i < 4; ++i) {
      saved.push_back(ledger.Alloc(MiB(10), Component::kActivations, Kind::kMlp, layer(i), mm));
      saved.push_back(
          ledger.Alloc(MiB(3), Component::kActivations, Kind::kDropoutMask, layer(i), mm));
    }
    ledger.Mark("forward_end", step);
    const BlockId gradient =
        ledger.Alloc(MiB(20), Component::kGradients, Kind::kOther, layer(3), mm);
    const BlockId scratch =
        ledger.Alloc(Bytes(512), Component::kTemporaries, Kind::kCast, ModuleId{}, mm);
    ledger.Free(scratch);
    for (const BlockId block : saved) ledger.Free(block);
    ledger.Mark("backward_end", step);
    if (step == 1) ledger.Alloc(MiB(40), Component::kOptimizer, Kind::kOther, layer(0), adam);
    ledger.Mark("optimizer_end", step);
    ledger.Free(gradient);
    if (step == 1) ledger.ChangeReserved(MiB(2));
    ledger.Mark("step_end", step);
  }
  return ledger;
}

PlanHeader Header() {
  return {.model = "acme/tiny-bert",
          .recipe = {"sequence-classification", "batch 4 x 512 tokens", "bf16"},
          .parameters = MiB(20).count() + MiB(1).count() / 4,
          .trainable = MiB(20).count() + MiB(1).count() / 4,
          .model_reserved = MiB(100),
          .assumptions = {"weights in float32: the config names no dtype"},
          .warnings = {},
          .verdict = std::nullopt};
}

PlanReport Report() { return BuildPlanReport(TrainingRun(), Header()); }

Bytes Of(const ComponentBytes& components, Component component) {
  return components[static_cast<size_t>(component)];
}

TEST(PlanReport, TotalsAndPeakComponentsAddUp) {
  const PlanReport report = Report();
  EXPECT_EQ(report.allocated, MiB(81 + 52 + 20 + 40) + Bytes(512));
  EXPECT_EQ(report.reserved, MiB(302));
  EXPECT_EQ(report.device, MiB(302 + 758));
  Bytes sum;
  for (int i = 0; i < kAllocatedComponentCount; ++i) {
    sum += report.peak.components[static_cast<size_t>(i)];
  }
  EXPECT_EQ(sum, report.allocated);
  EXPECT_EQ(sum + Of(report.peak.components, Component::kCache), report.reserved);
  EXPECT_EQ(report.reserved + Of(report.peak.components, Component::kContext), report.device);
}

TEST(PlanReport, SaysWhenThePeakHappens) {
  const PlanPeak peak = Report().peak;
  EXPECT_EQ(peak.step, 2);
  EXPECT_EQ(peak.phase, "backward_end");
  EXPECT_EQ(peak.module, "");
  EXPECT_EQ(peak.op, "aten::mm");
}

TEST(PlanReport, ModulesHoldEveryByteOfThePeak) {
  Bytes sum;
  for (const ModuleBytes& module : Report().peak.modules) {
    for (const Bytes bytes : module.bytes) sum += bytes;
  }
  EXPECT_EQ(sum, Report().allocated);
}

TEST(PlanReport, LadderClimbsFromContextToSteadyState) {
  const std::vector<LadderRung> ladder = Report().ladder;
  ASSERT_EQ(ladder.size(), 4u);
  EXPECT_EQ(ladder[0].device, MiB(518));
  EXPECT_EQ(ladder[1].device, MiB(618));
  EXPECT_EQ(ladder[2].name, "step 1");
  EXPECT_EQ(ladder[2].device, MiB(302 + 758));
  EXPECT_EQ(ladder[3].name, "steady from step 2");
  EXPECT_EQ(ladder[3].device, Report().device);
}

TEST(PlanReport, EmptyLedgerYieldsZeros) {
  const PlanReport report = BuildPlanReport(Ledger(), {});
  EXPECT_EQ(report.device, Bytes(0));
  EXPECT_FALSE(PlanText(report, PlanDetail::kSummary, {}).empty());
}

// ---- JSON ----

TEST(PlanJson, HasTheDocumentedShape) {
  const Json json = Json::parse(PlanJson(Report()));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["model"], "acme/tiny-bert");
  EXPECT_EQ(json["totals"]["device"], MiB(1060).count());
  EXPECT_EQ(json["peak"]["phase"], "backward_end");
  EXPECT_EQ(json["peak"]["components"].size(), 10u);
  EXPECT_EQ(json["peak"]["kinds"]["mlp"], MiB(40).count());
  EXPECT_EQ(json["peak"]["modules"]["bert.encoder.layer.3.dense"], MiB(53).count());
  EXPECT_EQ(json["phases"].size(), 11u);
  EXPECT_EQ(json["phases"][0]["name"], "train_begin");
  EXPECT_EQ(json["phases"][0]["components"]["weights"], MiB(81).count());
  EXPECT_TRUE(json["verdict"].is_null());
  int64_t sum = 0;
  for (int i = 0; i < kAllocatedComponentCount; ++i) {
    sum += json["peak"]["components"][std::string(Name(static_cast<Component>(i)))].get<int64_t>();
  }
  EXPECT_EQ(sum, json["peak"]["allocated"]);
}

TEST(PlanJson, VerdictSaysHowFarOff) {
  PlanReport report = Report();
  report.header.verdict = {.fits = true,
                           .gpu = "H200",
                           .memory = GiB(2),
                           .cap = GiB(1),
                           .needed = MiB(302),
                           .failure = std::nullopt};
  Json verdict = Json::parse(PlanJson(report))["verdict"];
  EXPECT_EQ(verdict["fits"], true);
  EXPECT_EQ(verdict["headroom"], MiB(1024 - 302).count());
  report.header.verdict->fits = false;
  report.header.verdict->cap = MiB(200);
  report.header.verdict->failure = {MiB(10), "backward", "classifier", "aten::mm"};
  verdict = Json::parse(PlanJson(report))["verdict"];
  EXPECT_EQ(verdict["short_by"], MiB(102).count());
  EXPECT_EQ(verdict["failure"]["module"], "classifier");
}

TEST(PlanJson, SurvivesNamesThatAreNoUtf8) {
  PlanReport report = Report();
  report.header.model = "\xff\"";
  EXPECT_TRUE(Json::accept(PlanJson(report)));
}

// ---- Text ----

TEST(PlanText, IsPlainAndAtMost80ColumnsInAPipe) {
  PlanReport report = Report();
  report.header.assumptions.push_back(std::string(30, 'x') + " " + std::string(60, 'y'));
  report.header.verdict = {.fits = true,
                           .gpu = "H200",
                           .memory = GiB(2),
                           .cap = GiB(1),
                           .needed = MiB(302),
                           .failure = std::nullopt};
  const std::string text = PlanText(report, PlanDetail::kModules, {});
  for (size_t start = 0; start < text.size();) {
    const size_t end = text.find('\n', start);
    EXPECT_LE(end - start, 80u) << text.substr(start, end - start);
    EXPECT_TRUE(end == start || text[end - 1] != ' ') << text.substr(start, end - start);
    start = end + 1;
  }
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= 32 && c < 127)) << static_cast<int>(c);
}

TEST(PlanText, ColoursAddNothingButEscapes) {
  const PlanReport report = Report();
  std::string coloured = PlanText(report, PlanDetail::kSummary, {.colour = true});
  for (size_t at = 0; (at = coloured.find('\x1b', at)) != std::string::npos;) {
    coloured.erase(at, coloured.find('m', at) - at + 1);
  }
  EXPECT_EQ(coloured, PlanText(report, PlanDetail::kSummary, {}));
}

TEST(PlanText, NamesTotalsPeakKindsAndVerdict) {
  PlanReport report = Report();
  report.header.verdict = {.fits = false,
                           .gpu = "T4",
                           .memory = MiB(900),
                           .cap = MiB(142),
                           .needed = MiB(302),
                           .failure = FailurePoint{MiB(10), "backward", "classifier", "aten::mm"}};
  const std::string text = PlanText(report, PlanDetail::kSummary, {});
  EXPECT_THAT(text, HasSubstr("allocated      193.0 MiB"));
  EXPECT_THAT(text, HasSubstr("Peak in step 2, backward (aten::mm)"));
  EXPECT_THAT(text, HasSubstr("dropout_mask"));
  EXPECT_THAT(text, HasSubstr("Does not fit on the T4 (900.0 MiB): 160.0 MiB short. It runs"));
  EXPECT_THAT(text, Not(HasSubstr("kv_cache")));
}

TEST(PlanText, SaysWhenTheRunOnlyJustFits) {
  const Verdict verdict = {.fits = true,
                           .tight = true,
                           .gpu = "",
                           .memory = GiB(12),
                           .cap = GiB(11),
                           .needed = GiB(10),
                           .failure = std::nullopt};
  EXPECT_THAT(VerdictSentence(verdict), HasSubstr("Just fits in 12.00 GiB, 1.00 GiB to spare"));
}

// ---- Modules ----

TEST(ModuleTree, FoldsEqualLayersAndJoinsOnlyChildren) {
  const ModuleNode root = BuildModuleTree(Report().peak.modules);
  ASSERT_EQ(root.children.size(), 2u);
  const ModuleNode& layers = root.children[0];
  EXPECT_EQ(layers.name, "bert.encoder.layer");
  ASSERT_EQ(layers.children.size(), 3u);  // 0 with the optimizer, 1-2, 3 with a gradient
  EXPECT_EQ(layers.children[0].name, "0.dense");
  EXPECT_EQ(layers.children[1].name, "[1-2].dense");
  EXPECT_EQ(layers.children[1].count, 2);
  EXPECT_EQ(Of(layers.children[1].total, Component::kWeights), MiB(40));
  EXPECT_EQ(root.children[1].name, "classifier");
}

TEST(ModuleTree, EveryLevelAddsUp) {
  const ModuleNode root = BuildModuleTree(Report().peak.modules);
  Bytes total;
  for (const Bytes bytes : root.total) total += bytes;
  EXPECT_EQ(total, Report().allocated);
}

TEST(ModuleTree, SortsAndFoldsNumbersInAnyOrder) {
  std::vector<ModuleBytes> modules;
  for (const int i : {10, 2, 0, 1, 11}) {
    ModuleBytes module{"h." + std::to_string(i), {}};
    module.bytes[0] = MiB(1);
    modules.push_back(module);
  }
  const ModuleNode root = BuildModuleTree(modules);
  ASSERT_EQ(root.children.size(), 1u);
  ASSERT_EQ(root.children[0].children.size(), 2u);
  EXPECT_EQ(root.children[0].children[0].name, "[0-2]");
  EXPECT_EQ(root.children[0].children[1].name, "[10-11]");
}

TEST(ModuleTree, EndlessPathsDoNotNestEndlessly) {
  std::string path;
  for (int i = 0; i < 100000; ++i) path += "a.";
  const ModuleNode root = BuildModuleTree(std::vector<ModuleBytes>{{path, {}}});
  EXPECT_EQ(root.children.size(), 1u);
}

// Loading peaks 10 MiB above its steady state; the prompt 30 above that; every token adds 1.
Ledger GenerationRun() {
  Ledger ledger;
  ledger.SetContext({{"CUDA context", MiB(520)}, {"kernels", MiB(158)}});
  const auto alloc = [&](Bytes bytes, Component component) {
    return ledger.Alloc(bytes, component, Kind::kOther, ModuleId{}, OpId{});
  };
  ledger.ChangeReserved(MiB(120));
  const BlockId staged = alloc(MiB(10), Component::kTemporaries);
  alloc(MiB(100), Component::kWeights);
  ledger.Free(staged);
  ledger.Mark("load", 0);
  ledger.ChangeReserved(MiB(40));
  alloc(MiB(8), Component::kKvCache);
  const BlockId activations = alloc(MiB(22), Component::kActivations);
  ledger.Free(activations);
  ledger.Mark("prefill", 0);
  alloc(MiB(1), Component::kKvCache);
  ledger.Mark("decode", 0);
  return ledger;
}

TEST(PlanReport, TellsLoadPrefillAndDecodeOfAGenerationApart) {
  PlanHeader header = Header();
  header.cache_per_token = 1024;
  const PlanReport report = BuildPlanReport(GenerationRun(), header);
  ASSERT_TRUE(report.generation.has_value());
  EXPECT_EQ(report.generation->load_peak, MiB(110));
  EXPECT_EQ(report.generation->weights, MiB(100));
  EXPECT_EQ(report.generation->prefill_peak, MiB(130));
  EXPECT_EQ(report.generation->decode_peak, MiB(109));
  EXPECT_EQ(report.generation->cache, MiB(9));
  ASSERT_EQ(report.ladder.size(), 4U);
  EXPECT_EQ(report.ladder[1].device, MiB(520 + 120));
  EXPECT_EQ(report.ladder[2].device, MiB(678 + 160));
}

TEST(PlanReport, HasNoGenerationWhereNothingGenerates) {
  EXPECT_FALSE(BuildPlanReport(TrainingRun(), Header()).generation.has_value());
  EXPECT_FALSE(
      Json::parse(PlanJson(BuildPlanReport(TrainingRun(), Header()))).contains("generation"));
}

TEST(PlanText, SaysWhatATokenAddsToTheCache) {
  PlanHeader header = Header();
  header.cache_per_token = 131072;
  const std::string text =
      PlanText(BuildPlanReport(GenerationRun(), header), PlanDetail::kSummary, TextStyle());
  EXPECT_THAT(text, HasSubstr("131,072 B a token and sequence"));
  EXPECT_THAT(text, HasSubstr("Peak while reading the prompt"));
}

}  // namespace
}  // namespace headroom
