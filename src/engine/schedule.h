// SPDX-License-Identifier: Apache-2.0
//
// Learning-rate schedules, under the names of TrainingArguments.lr_scheduler_type.
//
//   linear, cosine            up over warmup_steps, then down to 0 at the last step
//   constant                  learning_rate
//   constant_with_warmup      up over warmup_steps, then learning_rate
//   noam                      d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), times
//   learning_rate
//
// Steps are optimizer steps. As in Trainer, the first of a warm-up has rate 0; Noam counts from 1
// ("Attention Is All You Need", arXiv 1706.03762, 5.3).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace headroom::engine {

enum class ScheduleKind : uint8_t { kLinear, kCosine, kConstant, kConstantWithWarmup, kNoam };
std::string_view Name(ScheduleKind kind);
std::optional<ScheduleKind> ParseScheduleKind(std::string_view name);
std::vector<std::string_view> ScheduleNames();

struct Schedule {
  ScheduleKind kind = ScheduleKind::kLinear;
  double learning_rate = 5e-5;  // TrainingArguments' default; of kNoam a factor
  int64_t warmup_steps = 0;
  int64_t max_steps = 1;
  int64_t d_model = 1;  // of kNoam

  // The rate of an optimizer step. REQUIRES: step >= 1.
  double At(int64_t step) const;

  bool operator==(const Schedule&) const = default;
};

}  // namespace headroom::engine
