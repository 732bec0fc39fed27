// SPDX-License-Identifier: Apache-2.0
//
// LengthsReport: what a run over batches of different lengths does to the allocator, batch by
// batch. PyTorch keeps what it freed, in the sizes that earlier batches asked for; a longer batch
// may find nothing that fits it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "ledger/ledger.h"
#include "report/plan_report.h"
#include "report/text.h"

namespace headroom {

struct LengthsBatch {
  int step = 0;
  int64_t samples = 0;
  int64_t tokens = 0;
  Bytes peak;      // highest allocated while it ran
  Bytes reserved;  // at its end
  Bytes cached;    // of that, not allocated
};

// The same batches in another order, or padded.
struct LengthsVariant {
  std::string name;
  Bytes peak_allocated;
  Bytes peak_reserved;
  int fails_at = 0;  // step; 0: completes
};

struct LengthsReport {
  std::string model;
  std::vector<std::string> recipe;
  std::vector<std::string> assumptions;
  std::vector<std::string> warnings;
  std::vector<LengthsBatch> batches;  // those that began
  size_t asked = 0;                   // in the file
  bool stopped = false;               // by the user, before the end
  Bytes peak_allocated;
  Bytes peak_reserved;
  Bytes context;
  std::optional<Bytes> memory;          // the device's, when one was named
  std::optional<FailurePoint> failure;  // of the last batch
  std::vector<LengthsVariant> variants;
};

// Folds the steps of `ledger` into `report.batches`, whose shapes are there already.
void FillLengths(const Ledger& ledger, LengthsReport& report);

std::string LengthsText(const LengthsReport& report, const TextStyle& style);
// {"model", "batches": [{"step", "batch", "seq", "peak", "reserved", "cached"}], "peak_allocated",
// "peak_reserved", "context", "failure", "variants"}; sizes in bytes.
std::string LengthsJson(const LengthsReport& report);

}  // namespace headroom
