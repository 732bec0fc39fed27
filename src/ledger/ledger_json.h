// SPDX-License-Identifier: Apache-2.0
//
// A Ledger as a JSON text and back; docs/ledger_format.md describes every field.
//
// The file holds the stream and its tables in columns. What can be computed from the stream (marks'
// sizes, totals) stands in it too, and the reader computes it again: a file whose figures do not
// follow from its own events is refused.
//
//   {"format": "headroom.ledger", "schema": 1, …,
//    "blocks": {"component": [0, 3], …}, "events": {"type": "raafm", "value": [20971520, …]}, …}
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "ledger/ledger.h"

namespace headroom {

// Readers accept this version and no other.
inline constexpr int kLedgerSchema = 1;

// JSON text: a line per table, ending in a newline.
std::string ToJson(const Ledger& ledger);

// Reads what ToJson wrote; `origin` names the text in errors. Fails, naming the place, on what is
// not JSON, on another format or schema, on columns of unequal length, names that are not known,
// blocks freed twice or never allocated, more allocated than reserved, sizes beyond 2^62 bytes, and
// on marks or totals that the events do not yield. Memory stays within a small multiple of the
// text.
Result<Ledger> LedgerFromJson(std::string_view text, std::string_view origin);

}  // namespace headroom
