// SPDX-License-Identifier: Apache-2.0
//
// A ledger in the forms that other people's viewers open.
//
// As a memory snapshot it is what torch.cuda.memory._dump_snapshot would have written: PyTorch's
// viewer (pytorch.org/memory_viz) and `headroom explain` read it. Blocks lie where an allocator of
// expandable segments could have put them (address_space.h), one microsecond passes from event to
// event, and a block's "stack" is its op and its module.
// As a Chrome trace it opens in Perfetto and chrome://tracing: phases as slices, components as
// stacked counters.
#pragma once

#include <string>

#include "ledger/ledger.h"

namespace headroom {

// A pickle of protocol 4.
std::string SnapshotPickle(const Ledger& ledger);

// A JSON object with "traceEvents".
std::string ChromeTrace(const Ledger& ledger);

}  // namespace headroom
