// SPDX-License-Identifier: Apache-2.0
#include "ledger/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "ledger/ledger_json.h"

namespace headroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// weights 4 MiB, activations 2 MiB freed at forward's end, a gradient known as one only later.
class SmallRun : public ::testing::Test {
 protected:
  SmallRun() {
    const ModuleId dense = ledger.InternModule("encoder.dense");
    const OpId addmm = ledger.InternOp("aten::addmm");
    ledger.SetContext({{"CUDA context", MiB(500)}, {"cuBLAS", MiB(20)}});
    ledger.ChangeReserved(MiB(20));
    weights = ledger.Alloc(MiB(4), Component::kWeights, Kind::kOther, dense, OpId{});
    ledger.Mark("train_begin", 0);
    saved = ledger.Alloc(MiB(2), Component::kActivations, Kind::kMlp, dense, addmm);
    const BlockId scratch =
        ledger.Alloc(MiB(1), Component::kTemporaries, Kind::kCast, dense, addmm);
    peak = ledger.events().size() - 1;
    ledger.Free(scratch);
    ledger.Mark("forward_end", 1);
    gradient = ledger.Alloc(MiB(1), Component::kTemporaries, Kind::kMlp, dense, addmm);
    ledger.Reclassify(gradient, Component::kGradients, Kind::kOther);
    ledger.Free(saved);
    ledger.Mark("backward_end", 1);
    ledger.Free(gradient);
  }

  Ledger ledger;
  BlockId weights{};
  BlockId saved{};
  BlockId gradient{};
  size_t peak = 0;
};

Bytes Of(const ComponentBytes& components, Component component) {
  return components[static_cast<size_t>(component)];
}

TEST_F(SmallRun, KnowsPeakAndWhereItLies) {
  EXPECT_EQ(ledger.peak_allocated(), MiB(7));
  EXPECT_EQ(ledger.peak_event(), peak);
  EXPECT_EQ(ledger.peak_reserved(), MiB(20));
  EXPECT_EQ(ledger.context(), MiB(520));
  EXPECT_EQ(ledger.PhaseOf(peak)->name, "forward_end");
  EXPECT_EQ(ledger.PhaseOf(0)->name, "train_begin");
  EXPECT_EQ(ledger.PhaseOf(ledger.events().size() - 1), nullptr);
}

TEST_F(SmallRun, ListsWhatIsAliveInOrderOfAllocation) {
  std::vector<int64_t> sizes;
  for (const LiveBlock& block : ledger.LiveAt(peak)) sizes.push_back(block.bytes.count() >> 20);
  EXPECT_THAT(sizes, ElementsAre(4, 2, 1));
  const std::vector<LiveBlock> last = ledger.LiveAt(ledger.events().size() - 1);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].block, weights);
}

TEST_F(SmallRun, SplitsPeakIntoComponentsAndKinds) {
  const ComponentBytes components = ledger.ComponentsAt(peak);
  EXPECT_EQ(Of(components, Component::kWeights), MiB(4));
  EXPECT_EQ(Of(components, Component::kActivations), MiB(2));
  EXPECT_EQ(Of(components, Component::kTemporaries), MiB(1));
  EXPECT_EQ(Of(components, Component::kCache), MiB(13));
  EXPECT_EQ(Of(components, Component::kContext), MiB(520));
  const KindBytes kinds = ledger.KindsAt(peak);
  EXPECT_EQ(kinds[static_cast<size_t>(Kind::kMlp)], MiB(2));
  EXPECT_EQ(kinds[static_cast<size_t>(Kind::kCast)], MiB(1));
}

TEST_F(SmallRun, ReclassifiedBlockIsGradientForItsWholeLife) {
  const std::vector<ComponentBytes> at_marks = ledger.ComponentsAtMarks();
  ASSERT_EQ(at_marks.size(), 3u);
  EXPECT_EQ(Of(at_marks[2], Component::kGradients), MiB(1));
  EXPECT_EQ(Of(at_marks[2], Component::kTemporaries), Bytes(0));
  const ComponentBytes last = ledger.ComponentsAt(ledger.events().size() - 1);
  EXPECT_EQ(Of(last, Component::kGradients), Bytes(0));
}

TEST_F(SmallRun, ReclassifyingFreedBlockKeepsSumsConserved) {
  ledger.Reclassify(gradient, Component::kActivations, Kind::kNorm);
  const ComponentBytes last = ledger.ComponentsAt(ledger.events().size() - 1);
  EXPECT_EQ(Of(last, Component::kActivations), Bytes(0));
  EXPECT_EQ(Of(last, Component::kGradients), Bytes(0));
  const KindBytes kinds = ledger.KindsAt(ledger.events().size() - 1);
  EXPECT_EQ(kinds[static_cast<size_t>(Kind::kNorm)], Bytes(0));
}

TEST_F(SmallRun, MarksHoldPeakSinceThePreviousMark) {
  EXPECT_EQ(ledger.marks()[0].peak_allocated, MiB(4));
  EXPECT_EQ(ledger.marks()[1].peak_allocated, MiB(7));
  EXPECT_EQ(ledger.marks()[1].allocated, MiB(6));
  EXPECT_EQ(ledger.marks()[2].peak_allocated, MiB(7));
  EXPECT_EQ(ledger.marks()[2].allocated, MiB(5));
}

TEST(Ledger, EmptyLedgerHasNoPeak) {
  const Ledger ledger;
  EXPECT_EQ(ledger.peak_allocated(), Bytes(0));
  EXPECT_EQ(ledger.peak_event(), 0u);
  EXPECT_TRUE(ledger.ComponentsAtMarks().empty());
  EXPECT_EQ(ledger.PhaseOf(0), nullptr);
}

TEST(Ledger, InternsEachNameOnce) {
  Ledger ledger;
  const ModuleId a = ledger.InternModule("a");
  EXPECT_EQ(ledger.InternModule("a"), a);
  EXPECT_EQ(ledger.InternModule(""), ModuleId{});
  EXPECT_EQ(ledger.ModulePath(a), "a");
}

TEST(LedgerDeathTest, RefusesDerivedComponents) {
  Ledger ledger;
  EXPECT_DEATH(ledger.Alloc(MiB(1), Component::kCache, Kind::kOther, ModuleId{}, OpId{}),
               "derived");
  EXPECT_DEATH(ledger.Alloc(Bytes(-1), Component::kWeights, Kind::kOther, ModuleId{}, OpId{}),
               "negative");
}

// ---- JSON ----

TEST_F(SmallRun, JsonComesBackTheSame) {
  const std::string text = ToJson(ledger);
  const Result<Ledger> back = LedgerFromJson(text, "a.json");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(ToJson(*back), text);
  EXPECT_EQ(back->peak_event(), ledger.peak_event());
  EXPECT_EQ(back->ModulePath(ModuleId{1}), "encoder.dense");
  EXPECT_EQ(back->marks()[1].name, "forward_end");
  EXPECT_EQ(back->context_parts()[1].name, "cuBLAS");
}

// The example of docs/ledger_format.md, which the fuzzer starts from too.
TEST(LedgerJson, ReadsTheWorkedExampleOfTheFormat) {
  const Result<std::string> text =
      ReadFile(HEADROOM_TEST_DATA "/../fuzz/corpus/ledger_fuzz/worked_example.json");
  ASSERT_TRUE(text.ok()) << text.error().message;
  const Result<Ledger> ledger = LedgerFromJson(*text, "example");
  ASSERT_TRUE(ledger.ok()) << ledger.error().message;
  EXPECT_EQ(ledger->peak_allocated(), MiB(6));
  EXPECT_EQ(ledger->marks()[0].name, "forward_end");
  EXPECT_EQ(ledger->allocated(), MiB(4));
}

TEST(LedgerJson, EmptyLedgerComesBack) {
  const Result<Ledger> back = LedgerFromJson(ToJson(Ledger()), "a.json");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_TRUE(back->events().empty());
}

// Each case: `from` in the small run's text replaced by `to` is refused with a message that holds
// the origin and `says`.
struct Damage {
  std::string from;
  std::string to;
  std::string says;
};

TEST_F(SmallRun, DamagedJsonIsRefusedNamingThePlace) {
  const std::string text = ToJson(ledger);
  const Damage cases[] = {
      {"headroom.ledger", "something", "is no ledger"},
      {"\"schema\":1", "\"schema\":2", "schema: version 2"},
      {"\"schema\":1,", "", "schema: missing"},
      {"\"kinds\":", "\"kind\":", "kinds: missing"},
      {"\"weights\"", "\"weight\"", "components[0]: unknown name \"weight\""},
      {"\"weights\"", "\"cache\"", "components[0]: unknown name \"cache\""},
      {"\"norm\"", "\"nrom\"", "kinds[6]: unknown name"},
      {"\"encoder.dense\"", "\"\"", "modules[1]: \"\" stands twice"},
      {"[\"\",\"encoder", "[\"x\",\"encoder", "modules: does not begin with \"\""},
      {"\"component\":[0", "\"component\":[9", "blocks.component[0]: 9 is outside its table"},
      {"\"component\":[0", "\"component\":[-1", "blocks.component[0]: -1 is outside its table"},
      {"\"component\":[0", "\"component\":[0,0", "blocks.component: 5 values where 4 belong"},
      {"\"module\":[1", "\"module\":[2", "blocks.module[0]: 2 is outside its table of 2"},
      {"\"ramaa", "\"rxmaa", "events.type[1]: not one of the letters afrm"},
      {"\"ramaa", "\"rama", "events.value: 11 values where 10 belong"},
      {"\"value\":[20971520,4194304", "\"value\":[20971520,-1", "events.value[1]: -1 is no size"},
      {"\"value\":[20971520", "\"value\":[1048576", "bytes allocated, but only 1048576 reserved"},
      {"\"value\":[20971520", "\"value\":[-1", "events.value[0]: reserved cannot change by -1"},
      {"\"value\":[20971520", "\"value\":[20971520.5", "events.value: a fraction"},
      {"\"value\":[20971520", "\"value\":[\"x\"", "events.value: a text where a number belongs"},
      {"\"value\":[20971520", "\"value\":[99999999999999999999", "events.value: "},
      {"\"value\":[20971520", "\"value\":[[1]", "events.value: a list where none belongs"},
      {"\"allocated\":[4194304", "\"allocated\":[4194305",
       "marks.allocated[0]: 4194305, but the events yield 4194304"},
      {"\"totals\":{\"allocated\":7340032", "\"totals\":{\"allocated\":7340031",
       "totals.allocated[0]: 7340031, but the events yield 7340032"},
      {"\"step\":[0", "\"step\":[-3", "marks.step[0]: -3 is no step"},
      {"{\"format\"", "[{\"format\"", "a list where none belongs"},
      {"{\"format\"", "{\"format\":\"headroom.ledger\",\"format\"", "format: stands twice"},
      {"\"bytes\":[524288000", "\"bytes\":[-1", "context.bytes[0]: -1 is no size"},
  };
  for (const Damage& damage : cases) {
    std::string damaged = text;
    const size_t at = damaged.find(damage.from);
    ASSERT_NE(at, std::string::npos) << damage.from;
    damaged.replace(at, damage.from.size(), damage.to);
    const Result<Ledger> result = LedgerFromJson(damaged, "a.json");
    ASSERT_FALSE(result.ok()) << damage.from << " -> " << damage.to;
    EXPECT_THAT(result.error().message, HasSubstr("a.json: "));
    EXPECT_THAT(result.error().message, HasSubstr(damage.says));
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  }
}

TEST_F(SmallRun, DoubleFreeAndUnbornBlocksAreRefused) {
  const std::string text = ToJson(ledger);
  const auto with_last_free = [&](const std::string& block) {
    std::string damaged = text;
    const size_t end = damaged.find("]", damaged.find("\"value\":"));
    const size_t start = damaged.rfind(',', end) + 1;
    damaged.replace(start, end - start, block);
    const Result<Ledger> result = LedgerFromJson(damaged, "a.json");
    return result.ok() ? std::string() : result.error().message;
  };
  EXPECT_THAT(with_last_free("1"), HasSubstr("events.value[10]: block 1 is freed twice"));
  EXPECT_THAT(with_last_free("7"), HasSubstr("events.value[10]: block 7 is not yet allocated"));
  EXPECT_THAT(with_last_free("-1"), HasSubstr("block -1 is not yet allocated"));
}

TEST_F(SmallRun, EveryTruncationIsRefused) {
  const std::string text = ToJson(ledger);
  for (size_t length = 0; length + 2 < text.size(); ++length) {
    EXPECT_FALSE(LedgerFromJson(std::string_view(text).substr(0, length), "a.json").ok()) << length;
  }
}

TEST(LedgerJson, HostileTextIsRefusedInBoundedMemory) {
  const std::string deep(1 << 20, '[');
  EXPECT_FALSE(LedgerFromJson(deep, "a").ok());
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_THAT(LedgerFromJson(objects, "a").error().message, HasSubstr("nested too deeply"));
  EXPECT_THAT(LedgerFromJson("", "a").error().message, HasSubstr("not JSON at byte 1"));
  EXPECT_THAT(LedgerFromJson("7", "a").error().message, HasSubstr("no JSON object"));
  EXPECT_THAT(LedgerFromJson("{}", "a").error().message, HasSubstr("is no ledger"));
  EXPECT_FALSE(LedgerFromJson("{\"format\":\"\xff\"}", "a").ok());
}

TEST(LedgerJson, OverflowingSizesAreRefused) {
  Ledger ledger;
  ledger.ChangeReserved(Bytes((int64_t{1} << 62) - 1));
  ledger.Alloc(GiB(1), Component::kWeights, Kind::kOther, ModuleId{}, OpId{});
  std::string text = ToJson(ledger);
  ASSERT_TRUE(LedgerFromJson(text, "a").ok());
  text.replace(text.find("4611686018427387903"), 19, "9223372036854775807");
  EXPECT_THAT(LedgerFromJson(text, "a").error().message, HasSubstr("beyond 2^62"));
}

}  // namespace
}  // namespace headroom
