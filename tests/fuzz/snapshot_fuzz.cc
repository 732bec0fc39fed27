// SPDX-License-Identifier: Apache-2.0
//
// ParseSnapshot on arbitrary bytes (pickle, gzip or HTML, as they come): no crash; what is accepted
// can be played, classified and written as a ledger whose sums agree with the replay.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "observe/classify.h"
#include "observe/replay.h"
#include "observe/snapshot.h"

namespace headroom::observe {
namespace {

void Study(const Snapshot& snapshot, int device) {
  const Result<Replay> replay = ReplayDevice(snapshot, device);
  if (!replay.ok()) return;
  const Classification classes = Classify(snapshot, *replay);
  HEADROOM_CHECK(classes.blocks.size() == replay->blocks.size(), "a block without a class");
  const Ledger ledger = BuildLedger(snapshot, *replay, classes);
  HEADROOM_CHECK(ledger.allocated() == replay->end_allocated, "the ledger's end differs");
  HEADROOM_CHECK(ledger.peak_allocated() == replay->peak_allocated, "the ledger's peak differs");
  const ObservedTotals totals = TotalsAt(*replay, classes, replay->peak_event);
  HEADROOM_CHECK(totals.allocated == replay->peak_allocated, "components do not sum to the peak");
  const NamedSize parameters[] = {{"w", Bytes(1024)}, {"b", Bytes(512)}, {"m", Bytes(4096), true}};
  (void)Classify(snapshot, *replay, parameters);
}

}  // namespace
}  // namespace headroom::observe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace observe = headroom::observe;
  const headroom::Result<observe::Snapshot> snapshot =
      observe::ParseSnapshot({reinterpret_cast<const char*>(data), size}, "input");
  if (!snapshot.ok()) {
    HEADROOM_CHECK(!snapshot.error().message.empty(), "an error without a message");
    return 0;
  }
  for (const int device : observe::DevicesIn(*snapshot)) observe::Study(*snapshot, device);
  return 0;
}
