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
  ASSERT_EQ(snapshot.annotations.size(), 2U);
  EXPECT_TRUE(snapshot.annotations[0].is_start);
  EXPECT_THAT(snapshot.strings.Get(snapshot.annotations[0].name),
              testing::StartsWith("Optimizer.step#"));
}

TEST(SnapshotExport, WritesAnEmptyLedger) {
  EXPECT_TRUE(observe::ParseSnapshot(SnapshotPickle(Ledger()), "x").ok());
}

}  // namespace
}  // namespace headroom
