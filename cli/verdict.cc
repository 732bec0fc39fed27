// SPDX-License-Identifier: Apache-2.0
#include "verdict.h"

#include <algorithm>

namespace headroom::cli {
namespace {

// How finely the smallest sufficient cap is told: 1/256 of it, a few MiB at least.
Bytes Resolution(Bytes cap) { return std::max(MiB(8), Bytes(cap.count() / 256)); }

Result<bool> Completes(const PlayUnder& play, Bytes cap) {
  HEADROOM_ASSIGN_OR_RETURN(const Prediction prediction, play(cap));
  return !prediction.out_of_memory.has_value();
}

// The smallest cap between `fails` and `completes` that completes, found by bisection.
Result<Bytes> SmallestCap(const PlayUnder& play, Bytes fails, Bytes completes) {
  while (completes - fails > Resolution(completes)) {
    const Bytes middle = fails + Bytes((completes - fails).count() / 2);
    HEADROOM_ASSIGN_OR_RETURN(const bool fits, Completes(play, middle));
    (fits ? completes : fails) = middle;
  }
  return completes;
}

}  // namespace

Result<Verdict> Judge(const Prediction& unlimited, const Budget& budget, const PlayUnder& play) {
  const Bytes allocated = unlimited.ledger.peak_allocated();
  const Bytes reserved = unlimited.ledger.peak_reserved();
  Verdict verdict;
  verdict.gpu = budget.gpu;
  verdict.memory = budget.memory;
  verdict.cap = budget.memory - unlimited.ledger.context();
  verdict.needed = reserved;
  verdict.fits = verdict.cap >= reserved;
  if (verdict.fits) return verdict;

  // A cap below one block of the allocator needs no play: nothing fits in it.
  std::optional<OutOfMemory> failure;
  if (verdict.cap > Bytes(0)) {
    HEADROOM_ASSIGN_OR_RETURN(const Prediction capped, play(verdict.cap));
    failure = capped.out_of_memory;
    verdict.fits = !failure.has_value();
    verdict.tight = verdict.fits;
  }
  if (failure) {
    verdict.failure =
        FailurePoint{failure->requested, failure->phase, failure->module, failure->op};
  }
  // No run completes below its peak allocated.
  const Bytes fails =
      verdict.fits ? allocated - Bytes(1) : std::max(allocated - Bytes(1), verdict.cap);
  const Bytes completes = verdict.fits ? verdict.cap : reserved;
  HEADROOM_ASSIGN_OR_RETURN(verdict.needed, SmallestCap(play, fails, completes));
  return verdict;
}

}  // namespace headroom::cli
