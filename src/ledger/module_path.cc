// SPDX-License-Identifier: Apache-2.0
#include "ledger/module_path.h"

#include <algorithm>

namespace headroom {

std::string WithoutIndices(std::string_view path) {
  std::string out;
  size_t start = 0;
  while (start <= path.size()) {
    const size_t dot = std::min(path.find('.', start), path.size());
    const std::string_view part = path.substr(start, dot - start);
    const bool index =
        !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    out += index ? "*" : part;
    if (dot < path.size()) out += '.';
    start = dot + 1;
  }
  return out;
}

std::string_view FromStack(std::string_view path) {
  const size_t star = path.find(".*");
  if (star == std::string_view::npos) return path;
  const size_t dot = path.substr(0, star).rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

}  // namespace headroom
