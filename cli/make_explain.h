// SPDX-License-Identifier: Apache-2.0
//
// A snapshot from columns to report: replay, classify, fold into a ledger, and ask who holds what.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ledger/ledger.h"
#include "observe/classify.h"
#include "observe/holders.h"
#include "observe/snapshot.h"
#include "plan_options.h"
#include "report/explain_report.h"

namespace headroom::cli {

// One device of a snapshot, studied. The ledger is that of the recording.
struct StudiedSnapshot {
  observe::Snapshot snapshot;
  observe::Replay replay;
  observe::Classification classes;
  std::vector<observe::Growth> growth;
  Ledger ledger;
  std::string model;  // empty when none was given
  int64_t parameters = 0;
};

// `origin` names the file in errors. `device` unset: the one the snapshot is mostly about. `model`
// names blocks by their size.
Result<StudiedSnapshot> StudySnapshot(observe::Snapshot snapshot, const std::string& origin,
                                      std::optional<int> device, const PlanOptions* model);

// The run alone, as `plan` would report it.
PlanReport BuildRunReport(const StudiedSnapshot& study);

ExplainReport BuildExplainReport(const StudiedSnapshot& study, std::string name);

}  // namespace headroom::cli
