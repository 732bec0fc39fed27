// SPDX-License-Identifier: Apache-2.0
//
// A recording of headroom watch that comes from a stranger: it is read or refused in one line, and
// what was read is written and read again as the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "observe/recording.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using headroom::observe::RecordingFromJson;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto recording = RecordingFromJson(text, "fuzz.json");
  if (!recording.ok()) {
    HEADROOM_CHECK(recording.error().message.find('\n') == std::string::npos, "two lines");
    return 0;
  }
  const std::string written = headroom::observe::ToJson(*recording);
  const auto again = RecordingFromJson(written, "fuzz.json");
  HEADROOM_CHECK(again.ok(), "what was written cannot be read");
  HEADROOM_CHECK(headroom::observe::ToJson(*again) == written, "it reads as something else");
  return 0;
}
