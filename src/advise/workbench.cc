// SPDX-License-Identifier: Apache-2.0
#include "advise/workbench.h"

#include <algorithm>

namespace headroom {
namespace {

// Micro-batches that a trial plays. The second finds the gradients of the first; from there on each
// repeats the one before.
constexpr int64_t kPlayedMicroBatches = 2;

// The most that are played out. Of those beyond, the inputs still count.
constexpr int64_t kMostPlayedOut = 32;

bool FitsUnder(const Prediction& prediction, Bytes cap) {
  if (cap >= prediction.ledger.peak_reserved()) return true;
  if (cap < prediction.ledger.peak_allocated()) return false;
  return prediction.trace.Completes(cap);
}

// All micro-batches of a step lie on the device from its start: what those that are not played add.
// The model's buffers are inputs too, and there once.
Bytes InputsOf(int64_t left_out, const Prediction& prediction, int64_t played) {
  if (left_out == 0) return Bytes(0);
  const Ledger& ledger = prediction.ledger;
  const Bytes inputs =
      ledger.ComponentsAt(ledger.peak_event())[static_cast<size_t>(Component::kInputs)];
  return Bytes((inputs - prediction.buffers).count() / played * left_out);
}

}  // namespace

const Trial& Workbench::TryWith(const Variant& variant, Detail detail) {
  const auto known = std::ranges::find(trials_, variant, &std::pair<Variant, Trial>::first);
  if (known == trials_.end()) {
    return trials_.emplace_back(variant, Play(variant, detail, kPlayedMicroBatches)).second;
  }
  Trial& trial = known->second;
  const bool enough = detail == Detail::kFits || trial.needed || !trial.ran();
  if (!enough) trial = Play(variant, detail, kPlayedMicroBatches);
  return trial;
}

Trial Workbench::Play(const Variant& variant, Detail detail, int64_t most_played) {
  ++predictions_;
  Recipe recipe = variant.recipe;
  const int64_t accumulation = recipe.gradient_accumulation_steps;
  const int64_t played = std::min(accumulation, most_played);
  recipe.gradient_accumulation_steps = played;
  Platform platform = platform_;
  platform.allocator = variant.allocator;
  CostMeter meter(platform.gpu, recipe.precision);
  const Result<Prediction> prediction = Predict(config_, recipe, platform, &meter);
  Trial trial;
  if (!prediction.ok()) {
    trial.refused = prediction.error().message;
    return trial;
  }
  const Ledger& ledger = prediction->ledger;
  const Bytes left_out = InputsOf(accumulation - played, *prediction, played);
  trial.context = ledger.context();
  trial.allocated = ledger.peak_allocated();
  trial.reserved = ledger.peak_reserved();
  trial.attn_used = prediction->attn_used;
  trial.fits = FitsUnder(*prediction, memory_ - trial.context - left_out);
  trial.cost = meter.Step(recipe.steps, played, accumulation);
  if (detail == Detail::kFits) return trial;
  trial.needed = trial.context + left_out +
                 prediction->trace.SmallestCap(trial.allocated - Bytes(1), trial.reserved);
  if (const PhaseMark* mark = ledger.PhaseOf(ledger.peak_event())) trial.peak_phase = mark->name;
  trial.at_peak = ledger.ComponentsAt(ledger.peak_event());
  return trial;
}

Trial Workbench::MeasurePlayedOut(const Variant& variant) {
  return Play(variant, Detail::kNeeds, kMostPlayedOut);
}

bool Workbench::FitsPlayedOut(const Variant& variant) {
  if (variant.recipe.gradient_accumulation_steps <= kPlayedMicroBatches) return Try(variant).fits;
  return Play(variant, Detail::kFits, kMostPlayedOut).fits;
}

}  // namespace headroom
