// SPDX-License-Identifier: Apache-2.0
//
// TrainingArgumentsJson on arbitrary bytes, as an archive and as the pickle inside one: no crash,
// and what is accepted is an object of text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "observe/training_args.h"

namespace {

void Put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

// A zip archive of one stored member.
std::string Archive(std::string_view pickle) {
  constexpr std::string_view kName = "a/data.pkl";
  std::string out = "PK\x03\x04";
  out.append(14, '\0');
  Put(out, pickle.size(), 4);
  Put(out, pickle.size(), 4);
  Put(out, kName.size(), 2);
  Put(out, 0, 2);
  out.append(kName).append(pickle);
  const size_t directory = out.size();
  out += "PK\x01\x02";
  out.append(16, '\0');
  Put(out, pickle.size(), 4);
  Put(out, pickle.size(), 4);
  Put(out, kName.size(), 2);
  out.append(16, '\0');
  out.append(kName);
  out += "PK\x05\x06";
  out.append(12, '\0');
  Put(out, directory, 4);
  Put(out, 0, 2);
  return out;
}

void Read(std::string_view bytes) {
  const auto json =
      headroom::observe::TrainingArgumentsJson(bytes, [](std::string_view) { return true; });
  if (!json.ok()) {
    HEADROOM_CHECK(!json.error().message.empty(), "an error without a message");
    return;
  }
  HEADROOM_CHECK(json->front() == '{' && json->back() == '}', "no JSON object");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Read(bytes);
  Read(Archive(bytes));
  return 0;
}
