// SPDX-License-Identifier: Apache-2.0
//
// Advice: what fits, and what to change so that the asked recipe fits, cheapest first.
//
// Cheapest means: what stays nearest to what was asked (Effect), and of that what takes the least
// time (StepCost). Combinations are searched in that order, among subsets of the levers and micro-
// batches that keep the samples of a step; one that holds a smaller one which is as fast is left
// out. When no small combination fits, all levers together are tried, and what is not needed of
// them is dropped again: so that "nothing makes it fit" is the end of a search, not of a budget.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "advise/largest.h"
#include "advise/levers.h"
#include "advise/workbench.h"
#include "base/result.h"

namespace headroom {

struct Change {
  std::vector<std::string> parts;  // names of levers, "micro-batch 4 x 8"
  Variant variant;
  Trial trial;
  Effect effect = Effect::kSame;
  Bytes saved;             // of device memory, against the asked recipe
  double time_change = 0;  // of a step, as a fraction: 0.33 is a third longer
  std::string note;
};

// A change that was tried and does not lower what the run needs.
struct WithoutHelp {
  std::string name;
  std::string why;
};

struct Advice {
  Variant asked_variant;
  Trial asked;
  std::optional<Largest> batch;      // with everything else as asked
  std::optional<Largest> sequence;   // likewise; unset for images
  std::optional<Largest> lora_rank;  // likewise; unset without LoRA
  std::vector<Change> alone;         // that lower what is needed, cheapest first
  std::vector<Change> together;      // that fit, cheapest first; empty when the asked recipe fits
  std::vector<WithoutHelp> without_help;

  // The cheapest change that fits, alone or together; null when none does, or none is needed.
  const Change* Best() const;
};

struct AdviceScope {
  bool batch = true;
  bool sequence = true;
  bool lora_rank = true;  // of a recipe with LoRA
  bool changes = true;
};

// Fails when the asked recipe cannot run at all. `progress`, if set, is told now and then how many
// predictions were made.
Result<Advice> Advise(Workbench& bench, const Variant& asked, const AdviceScope& scope,
                      const std::function<void(int predictions)>& progress);

}  // namespace headroom
