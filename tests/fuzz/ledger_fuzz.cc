// SPDX-License-Identifier: Apache-2.0
//
// The ledger reader on any bytes: it refuses them in one line, or the ledger it yields writes the
// same text again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "ledger/ledger_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Ledger> ledger = LedgerFromJson(text, "fuzz");
  if (!ledger.ok()) {
    const std::string& message = ledger.error().message;
    HEADROOM_CHECK(!message.empty() && message.find('\n') == std::string::npos, "not one line");
    return 0;
  }
  const std::string written = ToJson(*ledger);
  const Result<Ledger> back = LedgerFromJson(written, "fuzz");
  HEADROOM_CHECK(back.ok() && ToJson(*back) == written, "the ledger does not come back");
  return 0;
}
