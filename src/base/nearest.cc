// SPDX-License-Identifier: Apache-2.0
#include "base/nearest.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace headroom {
namespace {

std::string Fold(std::string_view name) {
  std::string folded;
  for (const char c : name) {
    if (c != '-' && c != '_' && c != ' ') {
      folded += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return folded;
}

// Levenshtein distance.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string Nearest(std::string_view name, std::span<const std::string_view> candidates) {
  // A name longer than any we know is not a typing error; this also bounds the work.
  constexpr size_t kLongestName = 128;
  const std::string wanted = Fold(name.substr(0, kLongestName));
  if (wanted.empty()) return "";
  std::string_view best;
  size_t best_distance = std::string::npos;
  for (const std::string_view candidate : candidates) {
    const std::string folded = Fold(candidate);
    const bool contains = wanted.size() >= 3 && folded.find(wanted) != std::string::npos;
    const size_t distance = contains ? 1 : Distance(wanted, folded);
    const size_t allowed = contains ? 1 : std::max<size_t>(1, folded.size() / 3);
    if (distance <= allowed && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return std::string(best);
}

std::string DidYouMean(std::string_view name, std::span<const std::string_view> candidates) {
  const std::string nearest = Nearest(name, candidates);
  if (nearest.empty()) return "";
  return ": did you mean \"" + nearest + "\"?";
}

}  // namespace headroom
