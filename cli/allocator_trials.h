// SPDX-License-Identifier: Apache-2.0
//
// What other allocator settings would have made of a recorded run: its requests, played in order
// through the models of PyTorch's allocator that `plan` uses.
//
//   recorded   alloc 3 GiB | free | alloc 2 GiB | alloc 2 GiB     reserved
//   native     one segment of 3 GiB, one of 2 GiB                 5 GiB
//   expandable one range of 4 GiB                                 4 GiB
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "observe/classify.h"
#include "observe/replay.h"
#include "report/explain_report.h"

namespace headroom::cli {

struct AllocatorTrials {
  std::vector<AllocatorTrial> trials;
  std::string note;  // empty, or what was left out
};

// Trials of the native allocator and of expandable segments under the recorded settings. After a
// failure they end with the request that failed, under the most that could be reserved then.
AllocatorTrials PlayThroughAllocators(const observe::Snapshot& snapshot,
                                      const observe::Replay& replay,
                                      const observe::Classification& classes);

}  // namespace headroom::cli
