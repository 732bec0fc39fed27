// SPDX-License-Identifier: Apache-2.0
//
// What `explain` and `diff` are given: a file, or standard input, that is recognised by its first
// bytes as a memory snapshot, a ledger, a recording of `watch` or a text.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "observe/snapshot.h"

namespace headroom::cli {

struct Recording {
  enum class Kind : uint8_t { kSnapshot, kLedger, kWatch, kText };
  Kind kind = Kind::kText;
  std::string name;  // "oom.pickle"; "standard input"
  std::optional<observe::Snapshot> snapshot;
  // Of all others; of a log longer than kLongestText the end.
  std::string text;
};

// `path` "-" is standard input. Fails on what cannot be read and on snapshots that are none.
Result<Recording> OpenRecording(const std::string& path);

}  // namespace headroom::cli
