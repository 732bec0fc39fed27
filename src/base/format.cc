// SPDX-License-Identifier: Apache-2.0
#include "base/format.h"

namespace headroom {

std::string FormatArguments(fmt::string_view format, fmt::format_args arguments) {
  return fmt::vformat(format, arguments);
}

}  // namespace headroom
