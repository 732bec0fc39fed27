// SPDX-License-Identifier: Apache-2.0
//
// The lines of a text file that anybody may have written: with or without a byte order mark, ended
// by "\n" or "\r\n".
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace headroom::engine {

// Views into `text`, without their ends; the empty piece behind a last "\n" is none.
inline std::vector<std::string_view> LinesOf(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
  }
  return lines;
}

}  // namespace headroom::engine
