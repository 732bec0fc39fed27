// SPDX-License-Identifier: Apache-2.0
#include "advise/why_not.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/format.h"

namespace headroom {
namespace {

struct Difference {
  Component component;
  int64_t bytes;
};

// What moved between the peaks, the largest change first.
std::vector<Difference> Differences(const Trial& asked, const Trial& changed) {
  constexpr int64_t kTooSmall = int64_t{1} << 20;
  std::vector<Difference> differences;
  for (size_t i = 0; i < kComponentCount; ++i) {
    const int64_t bytes = (changed.at_peak[i] - asked.at_peak[i]).count();
    if (std::abs(bytes) >= kTooSmall) differences.push_back({static_cast<Component>(i), bytes});
  }
  std::ranges::stable_sort(differences, std::greater(),
                           [](const Difference& d) { return std::abs(d.bytes); });
  return differences;
}

std::string_view PhaseOf(const std::string& mark) {
  if (mark == "forward_end") return "forward";
  if (mark == "optimizer_end" || mark == "step_end") return "the optimizer step";
  if (mark == "train_begin") return "loading";
  return "backward";
}

}  // namespace

std::string WhyNot(const Trial& asked, const Trial& changed, Component lowers) {
  if (!changed.ran()) return changed.refused;
  const std::vector<Difference> differences = Differences(asked, changed);
  const bool grows = std::ranges::any_of(differences, [](const auto& d) { return d.bytes > 0; });
  if (grows) {
    std::vector<std::string> parts;
    for (size_t i = 0; i < std::min<size_t>(differences.size(), 3); ++i) {
      const Difference& d = differences[i];
      parts.push_back(Format("{} {}{}", Name(d.component), d.bytes > 0 ? "+" : "-",
                             FormatBytes(Bytes(std::abs(d.bytes)))));
    }
    return Format("it moves as much as it saves; at the peak: {}", fmt::join(parts, ", "));
  }
  const Bytes held = asked.at_peak[static_cast<size_t>(lowers)];
  return Format("the peak lies in {}, where {} of {} are {}", PhaseOf(asked.peak_phase),
                FormatBytes(held), FormatBytes(asked.allocated), Name(lowers));
}

}  // namespace headroom
