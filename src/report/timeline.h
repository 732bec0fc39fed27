// SPDX-License-Identifier: Apache-2.0
//
// Timeline: a ledger's memory over its events, thinned to what a screen can show.
//
// The run is cut into stretches of equal length, which end early at a mark. Of each stretch the
// lowest and the highest moment are kept, and the marks themselves, so that every peak and valley a
// screen of that many columns could show is there, the peaks of the run and of every phase among
// them.
//
//   allocated   1 5 2 2 9 3 | 3 4 4 8 1 1        two stretches
//   kept        1       9   |       8 1
#pragma once

#include <cstddef>
#include <vector>

#include "ledger/ledger.h"

namespace headroom {

struct TimelinePoint {
  size_t event = 0;             // the state after this event
  ComponentBytes components{};  // kCache and kContext included
};

// In order of events; all of them when there are at most `most_points`, else at most about
// `most_points`. REQUIRES: most_points >= 2.
std::vector<TimelinePoint> BuildTimeline(const Ledger& ledger, size_t most_points);

// A block's life, for "what is alive now".
struct BlockLife {
  size_t from = 0;  // its kAlloc
  size_t to = 0;    // its kFree; events().size() when it outlives the run
};

// The `most` largest blocks, in order of allocation.
std::vector<BlockLife> LargestBlocks(const Ledger& ledger, size_t most);

}  // namespace headroom
