// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace headroom::engine {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"linear", "cosine", "constant",
                                                    "constant_with_warmup", "noam"};

}  // namespace

std::string_view Name(ScheduleKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::optional<ScheduleKind> ParseScheduleKind(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<ScheduleKind>(found - kNames.begin());
}

std::vector<std::string_view> ScheduleNames() { return {kNames.begin(), kNames.end()}; }

// The factors are those of transformers 5.17, optimization.py, whose step 0 is our step 1.
double Schedule::At(int64_t step) const {
  const auto done = static_cast<double>(step - 1);
  const auto warmup = static_cast<double>(warmup_steps);
  if (kind == ScheduleKind::kNoam) {
    const auto count = static_cast<double>(step);
    const double rise = warmup > 0 ? count * std::pow(warmup, -1.5) : HUGE_VAL;
    return learning_rate * std::pow(static_cast<double>(d_model), -0.5) *
           std::min(std::pow(count, -0.5), rise);
  }
  if (kind == ScheduleKind::kConstant) return learning_rate;
  if (done < warmup) return learning_rate * done / std::max(1.0, warmup);
  const double rest = std::max(1.0, static_cast<double>(max_steps) - warmup);
  switch (kind) {
    case ScheduleKind::kLinear:
      return learning_rate * std::max(0.0, (static_cast<double>(max_steps) - done) / rest);
    case ScheduleKind::kCosine:
      return learning_rate *
             std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * (done - warmup) / rest)));
    default:
      return learning_rate;
  }
}

}  // namespace headroom::engine
