// SPDX-License-Identifier: Apache-2.0
//
// The largest batch or the longest sequence that fits.
//
// Memory grows with both, but not at every step: a size that is a multiple of the allocator's units
// can need less than the one below it. So the answer of the bisection is verified by what lies
// right above it, and moves up while that fits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/result.h"

namespace headroom {

enum class Fit : uint8_t {
  kFits,
  kTooLarge,  // out of memory
  kRefused,   // cannot run at all: more tokens than positions
};

struct Largest {
  std::optional<int64_t> value;  // unset: not even the smallest fits
  // What ends it: memory, or the most that may be asked for.
  bool limited_by_memory = false;
};

// Searches 1 … most for the largest value that `fit` says fits, from `start` on. What is refused
// counts as too large. A failure of `fit` ends the search.
Result<Largest> FindLargest(const std::function<Result<Fit>(int64_t)>& fit, int64_t start,
                            int64_t most);

}  // namespace headroom
