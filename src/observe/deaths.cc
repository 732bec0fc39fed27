// SPDX-License-Identifier: Apache-2.0
#include "observe/deaths.h"

#include <utility>

namespace headroom::observe {

void Deaths::Advance() {
  first_ = end_;
  end_ += kWindow;
  dying_.assign(kWindow, kNone);
  for (const uint32_t block : std::exchange(carried_, {})) Place(block);
  for (; next_ < replay_.blocks.size(); ++next_) {
    const BlockLife& block = replay_.blocks[next_];
    if (!block.from_before() && block.alloc_event >= end_) break;
    Place(static_cast<uint32_t>(next_));
  }
}

void Deaths::Place(uint32_t block) {
  const uint32_t death = replay_.blocks[block].free_event;
  if (death >= end_) {
    if (death != kNoEvent) carried_.push_back(block);
  } else {
    dying_[death - first_] = block;
  }
}

}  // namespace headroom::observe
