// SPDX-License-Identifier: Apache-2.0
//
// Deaths: which block an event frees, asked event by event from the front.
//
// Blocks stand in order of birth. To turn that around for all of a recording at once takes as much
// memory as its events; so it is done for a window of them at a time, and blocks that live on are
// carried to the next.
//
//   window of events 0..3   blocks 0 (0-2), 1 (1-never), 2 (3-5)   -> event 2 frees 0; carried: 1,
//   2 window of events 4..7                                          -> event 5 frees 2; carried: 1
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "observe/replay.h"

namespace headroom::observe {

class Deaths {
 public:
  explicit Deaths(const Replay& replay)
      : replay_(replay), first_(replay.events.first), end_(replay.events.first) {}

  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  // The block that dies at `event`, or kNone. REQUIRES: events are asked for in ascending order.
  uint32_t At(uint32_t event) {
    while (event >= end_) Advance();
    return dying_[event - first_];
  }

 private:
  static constexpr uint32_t kWindow = 1U << 16;
  void Advance();
  void Place(uint32_t block);

  const Replay& replay_;
  uint32_t first_;  // the window
  uint32_t end_;
  std::vector<uint32_t> dying_;    // by event of the window
  std::vector<uint32_t> carried_;  // born, and alive when the window ends
  size_t next_ = 0;                // the first block that was not looked at
};

}  // namespace headroom::observe
