// SPDX-License-Identifier: Apache-2.0
//
// ParseOomMessage on arbitrary text: no crash; what is read has no negative sizes and a cause.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "observe/oom_message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using headroom::Bytes;
  namespace observe = headroom::observe;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const headroom::Result<observe::OomMessage> message = observe::ParseOomMessage(text);
  HEADROOM_CHECK(message.ok() == observe::LooksLikeOomText(text), "the quick test disagrees");
  if (!message.ok()) return 0;
  for (const auto& bytes :
       {message->requested, message->capacity, message->free, message->process, message->allowed,
        message->allocated, message->reserved, message->unallocated(), message->outside_allocator(),
        message->others()}) {
    HEADROOM_CHECK(!bytes || *bytes >= Bytes(0), "a negative size");
  }
  HEADROOM_CHECK(!observe::Causes(*message).empty(), "no cause");
  (void)message->where();
  return 0;
}
