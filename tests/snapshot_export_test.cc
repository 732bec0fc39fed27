// SPDX-License-Identifier: Apache-2.0
//
// A ledger written as a snapshot and read again says the same.
#include "report/snapshot_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "observe/classify.h"
#include "observe/replay.h"
#include "observe/snapshot.h"

namespace headroom {
namespace {

Ledger OneStep() {
  Ledger ledger;
  const ModuleId layer = ledger.InternModule("bert.encoder.layer.0");
  const OpId mm = ledger.InternOp("aten::mm");
  ledger.ChangeReserved(MiB(20));
  ledger.Alloc(MiB(4), Component::kWeights, Kind::kOther, layer, OpId{});
  ledger.Alloc(Bytes(0), Component::kWeights, Kind::kOther, layer, OpId{});
  ledger.Mark("train_begin", 0);
  ledger.ChangeReserved(MiB(40));
  const BlockId kept = ledger.Alloc(MiB(30), Component::kActivations, Kind::kMlp, layer, mm);
  ledger.Mark("forward_end", 1);
  const BlockId gradient = ledger.Alloc(MiB(4), Component::kGradients, Kind::kOther, layer, mm);
  ledger.Free(kept);
  ledger.Mark("backward_end", 1);
  ledger.Alloc(MiB(8), Component::kOptimizer, Kind::kOther, layer, OpId{});
  ledger.Mark("optimizer_end", 1);
  ledger.Free(gradient);
  ledger.ChangeReserved(-MiB(30));
  ledger.Mark("step_end", 1);
  return ledger;
}

TEST(SnapshotExport, ReadsBackWithTheSameTotals) {
  const Ledger ledger = OneStep();
  const observe::Snapshot snapshot =
      observe::ParseSnapshot(SnapshotPickle(ledger), "export").value();
  EXPECT_TRUE(snapshot.warnings.empty());
  const observe::Replay replay = observe::ReplayDevice(snapshot, 0).value();
  EXPECT_EQ(replay.contradictions, 0U);
  EXPECT_EQ(replay.start_allocated, Bytes(0));
  EXPECT_EQ(replay.peak_allocated, ledger.peak_allocated());
  EXPECT_EQ(replay.peak_reserved, ledger.peak_reserved());
  EXPECT_EQ(replay.end_allocated, ledger.allocated());
  EXPECT_EQ(replay.end_reserved, ledger.reserved());
  EXPECT_EQ(replay.final_state.allocated, ledger.allocated());
  EXPECT_EQ(replay.final_state.reserved, ledger.reserved());
}

TEST(SnapshotExport, KeepsTheComponents) {
  const Ledger ledger = OneStep();
  const observe::Snapshot snapshot =
      observe::ParseSnapshot(SnapshotPickle(ledger), "export").value();
  const observe::Replay replay = observe::ReplayDevice(snapshot, 0).value();
  const observe::Classification classes = observe::Classify(snapshot, replay);
  const Ledger again = observe::BuildLedger(snapshot, replay, classes);
  const ComponentBytes expected = ledger.ComponentsAt(ledger.peak_event());
  EXPECT_EQ(again.ComponentsAt(again.peak_event()), expected);
}

TEST(SnapshotExport, MarksTheOptimizersSteps) {
  const observe::Snapshot snapshot = observe::ParseSnapshot(SnapshotPickle(OneStep()), "x").value();
  int steps = 0;
  for (const observe::Annotation& annotation : snapshot.annotations) {
    const std::string_view name = snapshot.strings.Get(annotation.name);
    if (!name.starts_with("Optimizer.step#")) continue;
    EXPECT_EQ(annotation.is_start, steps++ == 0);
  }
  EXPECT_EQ(steps, 2);
}

// As a recording knows it: what was never asked for and what lies outside are not in it.
TEST(SnapshotExport, ReadsBackPhaseByPhaseAndBlockByBlock) {
  const Ledger ledger = OneStep();
  const observe::Snapshot snapshot =
      observe::ParseSnapshot(SnapshotPickle(ledger), "export").value();
  const observe::Replay replay = observe::ReplayDevice(snapshot, 0).value();
  const observe::Classification classes = observe::Classify(snapshot, replay);
  const Ledger again = observe::BuildLedger(snapshot, replay, classes);
  ASSERT_EQ(again.marks().size(), ledger.marks().size());
  for (size_t i = 0; i < ledger.marks().size(); ++i) {
    const PhaseMark& expected = ledger.marks()[i];
    const PhaseMark& mark = again.marks()[i];
    EXPECT_EQ(mark.name, expected.name);
    EXPECT_EQ(mark.step, expected.step);
    EXPECT_EQ(mark.allocated, expected.allocated);
    EXPECT_EQ(mark.peak_allocated, expected.peak_allocated);
    EXPECT_EQ(mark.reserved, expected.reserved);
  }
  EXPECT_EQ(again.ComponentsAtMarks(), ledger.ComponentsAtMarks());
  EXPECT_EQ(again.KindsAt(again.peak_event()), ledger.KindsAt(ledger.peak_event()));
  const MemoryEvent peak = ledger.events()[ledger.peak_event()];
  const MemoryEvent again_peak = again.events()[again.peak_event()];
  EXPECT_EQ(again.ModulePath(again_peak.module), ledger.ModulePath(peak.module));
  EXPECT_EQ(again.OpName(again_peak.op), ledger.OpName(peak.op));
  EXPECT_EQ(again.PhaseOf(again.peak_event())->name, "backward_end");
  EXPECT_TRUE(classes.phases.trains);
  EXPECT_THAT(classes.notes, testing::ElementsAre(testing::HasSubstr("predicted, not recorded")));
  EXPECT_EQ(classes.phases.steps, 1);
}

TEST(SnapshotExport, WritesAnEmptyLedger) {
  EXPECT_TRUE(observe::ParseSnapshot(SnapshotPickle(Ledger()), "x").ok());
}

}  // namespace
}  // namespace headroom
