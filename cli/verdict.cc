// SPDX-License-Identifier: Apache-2.0
#include "verdict.h"

#include <algorithm>

#include "base/check.h"

namespace headroom::cli {
namespace {

// Where the play under `cap` dies. REQUIRES: it does not complete.
Result<FailurePoint> FindFailure(const PlayUnder& play, Bytes cap) {
  HEADROOM_ASSIGN_OR_RETURN(const Prediction capped, play(cap));
  HEADROOM_CHECK(capped.out_of_memory.has_value(), "a play completes where its replay fails");
  const OutOfMemory& failure = *capped.out_of_memory;
  return FailurePoint{failure.requested, failure.phase, failure.module, failure.op};
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

  verdict.fits = verdict.cap >= allocated && unlimited.trace.Completes(verdict.cap);
  verdict.tight = verdict.fits;
  // A cap of nothing needs no play: nothing fits in it.
  if (!verdict.fits && verdict.cap > Bytes(0)) {
    HEADROOM_ASSIGN_OR_RETURN(verdict.failure, FindFailure(play, verdict.cap));
  }
  // No run completes below its peak allocated.
  const Bytes fails =
      verdict.fits ? allocated - Bytes(1) : std::max(allocated - Bytes(1), verdict.cap);
  verdict.needed = unlimited.trace.SmallestCap(fails, verdict.fits ? verdict.cap : reserved);
  return verdict;
}

}  // namespace headroom::cli
