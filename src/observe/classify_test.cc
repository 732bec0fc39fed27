// SPDX-License-Identifier: Apache-2.0
#include "observe/classify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "base/format.h"
#include "observe/size_match.h"

namespace headroom::observe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMptParameters = 202'662'912;
constexpr int64_t kAlbertParameters = 11'685'122;
constexpr int64_t kGpt2Parameters = 124'439'808;

Snapshot Read(const std::string& name) {
  Result<Snapshot> snapshot = ReadSnapshot(std::string(HEADROOM_TEST_DATA) + "/snapshots/" + name);
  EXPECT_TRUE(snapshot.ok());
  return std::move(snapshot).value();
}
Snapshot Mpt() { return Read("mpt-small--b4-s512-bf16.pickle.gz"); }
Snapshot Albert() { return Read("albert-base--b4-s512-bf16.pickle.gz"); }

// A snapshot, played and classified.
struct Study {
  explicit Study(Snapshot s, std::span<const NamedSize> parameters = {})
      : snapshot(std::move(s)),
        replay(ReplayDevice(snapshot, 0).value()),
        classes(Classify(snapshot, replay, parameters)) {}

  ObservedTotals AtPeak() const { return TotalsAt(replay, classes, replay.peak_event); }
  ObservedTotals AtEnd() const { return TotalsAt(replay, classes, replay.events.end() - 1); }
  // When the last backward pass has ended.
  ObservedTotals AfterBackward() const {
    uint32_t event = kNoEvent;
    for (const PhaseSpan& span : classes.phases.spans) {
      if (span.stage == Stage::kBackward) event = span.end - 1;
    }
    return TotalsAt(replay, classes, event);
  }

  Snapshot snapshot;
  Replay replay;
  Classification classes;
};

int64_t Of(const ComponentBytes& bytes, Component component) {
  return bytes[static_cast<size_t>(component)].count();
}

// Within one percent of what `parameters` in fp32 weigh, each `copies` times.
void ExpectNear(int64_t bytes, int64_t parameters, int copies, const std::string& what) {
  const double expected = 4.0 * static_cast<double>(parameters) * copies;
  EXPECT_NEAR(static_cast<double>(bytes) / expected, 1.0, 0.01) << what;
}

void ExpectTrainingState(const Study& study, int64_t parameters) {
  ExpectNear(Of(study.AtEnd().requested, Component::kWeights), parameters, 1, "weights");
  ExpectNear(Of(study.AfterBackward().requested, Component::kGradients), parameters, 1,
             "gradients");
  ExpectNear(Of(study.AtEnd().requested, Component::kOptimizer), parameters, 2, "optimizer");
  const ObservedTotals peak = study.AtPeak();
  EXPECT_LT(peak.unexplained.count() * 50, peak.allocated.count());
}

template <typename Change>  // StackId change(StackId)
void ChangeStacks(Snapshot* s, const Change& change) {
  for (size_t i = 0; i < s->events.count(); ++i) {
    Event event = s->events[i];
    event.stack = change(event.stack);
    s->events.Set(i, event);
  }
  for (Block& block : s->blocks) block.stack = change(block.stack);
}

void DropStacks(Snapshot* s) {
  s->stacks = StackTable();
  ChangeStacks(s, [](StackId) { return StackId(); });
}

// What _record_memory_history(stacks="python") would have written.
void KeepPythonFrames(Snapshot* s) {
  StackTable python;
  std::vector<StackId> ids;
  for (size_t i = 0; i < s->stacks.size(); ++i) {
    std::vector<FrameId> frames;
    for (const FrameId frame : s->stacks[StackId(i)]) {
      if (s->strings.Get(s->frames[frame].filename).ends_with(".py")) frames.push_back(frame);
    }
    ids.push_back(python.Intern(frames.size(), [&](size_t f) { return frames[f]; }));
  }
  ChangeStacks(s, [&](StackId stack) { return ids[static_cast<uint32_t>(stack)]; });
  s->stacks = std::move(python);
}

// As if the ring of events had lost this part of its start.
void LoseStart(Snapshot* s, double part) {
  Range& events = s->devices[0];
  const auto lost = static_cast<uint32_t>(events.count * part);
  events = {events.first + lost, events.count - lost};
}

TEST(Classify, FindsWeightsGradientsAndOptimizerToTheByte) {
  for (const auto& [snapshot, parameters] :
       {std::pair(Mpt(), kMptParameters), std::pair(Albert(), kAlbertParameters)}) {
    const Study study(snapshot);
    EXPECT_EQ(Of(study.AtEnd().requested, Component::kWeights), 4 * parameters);
    EXPECT_EQ(Of(study.AfterBackward().requested, Component::kGradients), 4 * parameters);
    // AdamW keeps two copies and a step counter of four bytes a parameter tensor.
    const int64_t optimizer = Of(study.AtEnd().requested, Component::kOptimizer);
    EXPECT_GE(optimizer, 8 * parameters);
    EXPECT_LT(optimizer, 8 * parameters + 4 * 200);
    EXPECT_LE(study.AtPeak().unexplained.count(), 512);
  }
}

TEST(Classify, TellsBuffersFromWeights) {
  const Study study(Albert());
  EXPECT_EQ(Of(study.AtEnd().requested, Component::kInputs), 8192);  // position and type ids
}

TEST(Classify, FindsWorkspaces) {
  const Study study(Mpt());
  EXPECT_EQ(Of(study.AtPeak().requested, Component::kWorkspace) >> 20, 64);
}

TEST(Classify, WorksOnPythonStacksAlone) {
  Snapshot snapshot = Mpt();
  KeepPythonFrames(&snapshot);
  const Study study(std::move(snapshot));
  ExpectTrainingState(study, kMptParameters);
  EXPECT_FALSE(study.classes.stacks.any_engine());
  EXPECT_THAT(study.classes.notes, ElementsAre(HasSubstr("only Python stacks")));
}

TEST(Classify, WorksWithoutStacks) {
  Snapshot snapshot = Mpt();
  DropStacks(&snapshot);
  const Study study(std::move(snapshot));
  ExpectTrainingState(study, kMptParameters);
  EXPECT_TRUE(study.classes.phases.guessed);
  EXPECT_THAT(study.classes.notes, ElementsAre(HasSubstr("no call stacks were recorded")));
}

TEST(Classify, WorksOnARecordingThatLostItsStart) {
  for (const double part : {0.3, 0.6}) {
    for (const bool stacks : {true, false}) {
      Snapshot snapshot = Mpt();
      LoseStart(&snapshot, part);
      if (!stacks) DropStacks(&snapshot);
      SCOPED_TRACE(Format("without {} of the events, {} stacks", part, stacks ? "with" : "no"));
      ExpectTrainingState(Study(std::move(snapshot)), kMptParameters);
    }
  }
}

TEST(Classify, NamesParametersFromTheTable) {
  const std::vector<NamedSize> table = {
      {"transformer.wte.weight", Bytes(int64_t{50432} * 1024 * 4)},
      {"transformer.blocks.0.norm_1.weight", Bytes(1024 * 4)},
      {"transformer.blocks.1.norm_1.weight", Bytes(1024 * 4)},
  };
  const Study study(Mpt(), table);
  std::map<std::string, int> weights;
  std::map<std::string, int> gradients;
  for (size_t i = 0; i < study.classes.blocks.size(); ++i) {
    const BlockClass& c = study.classes.blocks[i];
    const std::string& name = study.classes.names[c.name];
    if (c.component == Component::kWeights) ++weights[name];
    if (c.component == Component::kGradients) ++gradients[name];
  }
  EXPECT_EQ(weights["transformer.wte.weight"], 1);
  EXPECT_EQ(gradients["transformer.wte.weight"], 2);  // one a step
  EXPECT_GE(weights["transformer.blocks.1.norm_1.weight"], 1);
}

TEST(Classify, KnowsPreexistingBlocksBySizeAlone) {
  // No trace and no stacks: a list of segments, as memory_snapshot() gives it.
  Snapshot snapshot = Mpt();
  DropStacks(&snapshot);
  snapshot.devices.clear();
  std::vector<NamedSize> table;
  const Study full(Mpt());
  for (size_t i = 0; i < full.classes.blocks.size(); ++i) {
    if (full.classes.blocks[i].component != Component::kWeights) continue;
    table.push_back({Format("p{}", i), Bytes(full.replay.blocks[i].requested())});
  }
  const Study study(std::move(snapshot), table);
  ExpectNear(Of(study.AtEnd().requested, Component::kWeights), kMptParameters, 1, "weights");
  EXPECT_THAT(study.classes.notes, ElementsAre(HasSubstr("_record_memory_history(max_entries")));
}

TEST(Classify, SaysWhatTippedAnOutOfMemoryOver) {
  const Study study(Read("oom-gpt2.pickle.gz"));
  ASSERT_EQ(study.replay.ooms.size(), 1U);
  const StackClass& failed = study.classes.stacks[study.replay.ooms[0].stack];
  EXPECT_EQ(failed.stage, Stage::kForward);
  EXPECT_EQ(failed.kind, Kind::kLogitsLoss);
  EXPECT_EQ(Of(study.AtEnd().requested, Component::kWeights), 4 * kGpt2Parameters - 0);
  EXPECT_EQ(Of(study.AtEnd().requested, Component::kGradients), 0);
  const PhaseSpan* open = study.classes.phases.open();
  ASSERT_NE(open, nullptr);
  EXPECT_EQ(open->stage, Stage::kForward);
}

TEST(BuildLedger, GivesPhasesAsTheTrainerMeasuredThem) {
  const Study study(Mpt());
  const Ledger ledger = BuildLedger(study.snapshot, study.replay, study.classes);
  EXPECT_EQ(ledger.peak_allocated(), study.replay.peak_allocated);
  EXPECT_EQ(ledger.peak_reserved(), study.replay.peak_reserved);
  // Name, step and peak since the mark before, of the same run measured without recording; the
  // first peak of a phase is what matters, its end includes objects that Python has yet to drop.
  const std::vector<std::tuple<std::string, int, int64_t>> expected = {
      {"train_begin", 0, 811700736},   {"step_begin", 1, 811752448},
      {"forward_begin", 1, 811734016}, {"forward_end", 1, 4420852736},
      {"backward_end", 1, 4617951744}, {"optimizer_end", 1, 3311885312}};
  ASSERT_GE(ledger.marks().size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const PhaseMark& mark = ledger.marks()[i];
    EXPECT_EQ(std::tuple(mark.name, mark.step, mark.peak_allocated.count()), expected[i]);
  }
}

TEST(BuildLedger, KeepsTheSumsOfTheReplay) {
  for (const Snapshot& snapshot : {Mpt(), Albert(), Read("oom-gpt2.pickle.gz")}) {
    const Study study(snapshot);
    const Ledger ledger = BuildLedger(study.snapshot, study.replay, study.classes);
    EXPECT_EQ(ledger.allocated(), study.replay.end_allocated);
    EXPECT_EQ(ledger.reserved(), study.replay.end_reserved);
    const ComponentBytes at_peak = ledger.ComponentsAt(ledger.peak_event());
    const ObservedTotals totals = study.AtPeak();
    for (int i = 0; i < kAllocatedComponentCount; ++i) {
      const auto at = static_cast<size_t>(i);
      EXPECT_EQ(at_peak[at], totals.handed_out[at]) << Name(Component(i));
    }
  }
}

TEST(FrameFacts, ReadsLibrariesAndNotUserNames) {
  EXPECT_TRUE(Has(FactsOf("forward", "/x/torch/nn/modules/linear.py"), FrameFact::kForward));
  EXPECT_TRUE(Has(FactsOf("forward", "/x/torch/nn/modules/linear.py"), FrameFact::kLinear));
  EXPECT_TRUE(Has(FactsOf("step", "/x/torch/optim/adamw.py"), FrameFact::kOptimizerStep));
  EXPECT_FALSE(Has(FactsOf("step", "/x/torch/optim/lr_scheduler.py"), FrameFact::kOptimizerStep));
  EXPECT_TRUE(Has(FactsOf("torch::autograd::Engine::thread_main(int)", "??"), FrameFact::kEngine));
  EXPECT_EQ(FactsOf("profile_memory_forward_fullstep", "train.py"),
            static_cast<uint64_t>(FrameFact::kPython));
  EXPECT_EQ(FactsOf("my_optimizer_backward_param", "train.py"),
            static_cast<uint64_t>(FrameFact::kPython));
}

TEST(FrameFacts, NamesOpsAndNodes) {
  EXPECT_EQ(OpOf("at::_ops::addmm::call(at::Tensor const&)"), "addmm");
  EXPECT_EQ(OpOf("at::native::addmm(at::Tensor const&)"), "");
  EXPECT_EQ(BackwardNodeOf("torch::autograd::generated::AddmmBackward0::apply(std::vector<x>&&)"),
            "AddmmBackward0");
  EXPECT_EQ(BackwardNodeOf("torch::autograd::AccumulateGrad::apply(std::vector<x>&&)"),
            "AccumulateGrad");
  EXPECT_EQ(BackwardNodeOf("std::apply(x)"), "");
  EXPECT_EQ(BaseName("/a/b/c.py"), "c.py");
  EXPECT_EQ(BaseName("c.py"), "c.py");
}

TEST(ParameterSizes, HandsOutNamesInOrder) {
  const std::vector<NamedSize> table = {
      {"a", Bytes(8)}, {"b", Bytes(8)}, {"c", Bytes(4)}, {"d", Bytes(16), true}};
  ParameterSizes sizes(table);
  auto forward = sizes.Names(ParameterSizes::Order::kForward);
  EXPECT_EQ(forward.Next(8), 1U);
  EXPECT_EQ(forward.Next(8), 2U);
  EXPECT_EQ(forward.Next(8), 1U);
  EXPECT_EQ(forward.Next(5), 0U);
  auto backward = sizes.Names(ParameterSizes::Order::kBackward);
  EXPECT_EQ(backward.Next(8), 2U);
  EXPECT_EQ(sizes.Weights().at(8), 2);
  EXPECT_TRUE(sizes.TakeBuffer(16));
  EXPECT_FALSE(sizes.TakeBuffer(16));
}

}  // namespace
}  // namespace headroom::observe
