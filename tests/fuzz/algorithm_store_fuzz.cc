// SPDX-License-Identifier: Apache-2.0
//
// A file of matrix-product algorithms on any bytes: what is read is written and read as the same,
// under a name that stays in its folder; what is not is refused in one line.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "engine/cuda/algorithm_store.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  using namespace headroom::engine::cuda;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<AlgorithmStore> store = AlgorithmStore::Parse(text, "fuzz");
  if (!store.ok()) {
    const std::string& message = store.error().message;
    HEADROOM_CHECK(!message.empty() && message.find('\n') == std::string::npos, message);
    return 0;
  }
  const Result<AlgorithmStore> again = AlgorithmStore::Parse(store->ToText(), "again");
  HEADROOM_CHECK(again.ok(), again.error().message);
  HEADROOM_CHECK(
      again->identity() == store->identity() && again->algorithms() == store->algorithms(),
      "algorithms that are not kept");
  HEADROOM_CHECK(StoreFile("folder", store->identity()).parent_path() == "folder",
                 "a file outside its folder");
  return 0;
}
