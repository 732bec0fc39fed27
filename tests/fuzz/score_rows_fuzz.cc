// SPDX-License-Identifier: Apache-2.0
//
// The reader of measured rows on any bytes: rows whose sizes make sense, or one line that says why
// not.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "score_rows.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> warnings;
  const auto rows = cli::ReadMeasuredRows(text, "fuzz", warnings);
  if (!rows.ok()) {
    HEADROOM_CHECK(!rows.error().message.empty(), "an error without a message");
    return 0;
  }
  for (const cli::MeasuredRow& row : *rows) {
    HEADROOM_CHECK(row.recipe.per_device_train_batch_size > 0 && row.recipe.steps > 0,
                   "a recipe without batch or steps");
    HEADROOM_CHECK(row.peak_allocated && *row.peak_allocated >= 0, "a row without a peak");
  }
  return 0;
}
