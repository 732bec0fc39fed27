// SPDX-License-Identifier: Apache-2.0
//
// The readers of safetensors headers and indices on any bytes: tensors that fill their file, or one
// line that says why not, and where.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tensors = ParseSafetensorsHeader(text, static_cast<int64_t>(size), "fuzz");
  if (tensors.ok()) {
    int64_t filled = 0;
    for (const StoredTensor& tensor : *tensors) {
      HEADROOM_CHECK(tensor.begin == filled && tensor.end >= tensor.begin, "a hole or an overlap");
      HEADROOM_CHECK(tensor.end <= static_cast<int64_t>(size), "a tensor beyond the file");
      filled = tensor.end;
    }
  } else {
    HEADROOM_CHECK(tensors.error().message.find("at byte") != std::string::npos,
                   "a refusal without a place");
  }
  const auto index = ParseSafetensorsIndex(text, "fuzz");
  if (index.ok()) {
    HEADROOM_CHECK(!index->files.empty() && index->tensors >= index->files.size(),
                   "an index without shards");
  } else {
    HEADROOM_CHECK(!index.error().message.empty(), "an error without a message");
  }
  return 0;
}
