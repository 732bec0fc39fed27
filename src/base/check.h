// SPDX-License-Identifier: Apache-2.0
//
// HEADROOM_CHECK(condition, message): for what only a bug of ours can make false. Prints the place
// and the message on stderr and aborts, in every build type.
#pragma once

#include <string_view>

namespace headroom {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view message);

}  // namespace headroom

#define HEADROOM_CHECK(condition, message)                                \
  do {                                                                    \
    if (!(condition)) [[unlikely]] {                                      \
      ::headroom::CheckFailed(__FILE__, __LINE__, #condition, (message)); \
    }                                                                     \
  } while (false)
