// SPDX-License-Identifier: Apache-2.0
//
// The tables that every ledger has on the page.
#pragma once

#include <vector>

#include "report/html_report.h"

namespace headroom {

// Components, kinds, holders and modules at the peak, and the phases; without those that would be
// empty.
std::vector<PageTable> LedgerTables(const PageLedger& run);

// "bert.encoder.layer.*.output": modules of one role share it.
std::string WithoutNumbers(const std::string& path);

}  // namespace headroom
