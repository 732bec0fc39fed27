// SPDX-License-Identifier: Apache-2.0
#include "advise/workbench.h"

#include <algorithm>
#include <thread>
#include <vector>

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

const Trial* Workbench::Find(const Variant& variant, Detail detail) const {
  const auto known = std::ranges::find_if(trials_, [&](const Known& one) {
    const bool enough = detail == Detail::kFits || one.detail == Detail::kNeeds;
    return (enough || !one.trial.ran()) && one.variant == variant;
  });
  return known == trials_.end() ? nullptr : &known->trial;
}

const Trial& Workbench::TryWith(const Variant& variant, Detail detail) {
  std::unique_lock lock(mutex_);
  if (const Trial* known = Find(variant, detail)) return *known;
  lock.unlock();
  Trial trial = Play(variant, detail, kPlayedMicroBatches);
  lock.lock();
  // Another thread may have been at it, too.
  if (const Trial* known = Find(variant, detail)) return *known;
  return trials_.emplace_back(variant, detail, std::move(trial)).trial;
}

size_t Workbench::known() {
  const std::lock_guard lock(mutex_);
  return trials_.size();
}

void Workbench::MeasureAll(std::span<const Variant> variants) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < variants.size(); i = next++) Measure(variants[i]);
  };
  const size_t threads = std::min<size_t>(variants.size(), std::thread::hardware_concurrency());
  std::vector<std::jthread> others;
  for (size_t i = 1; i < threads; ++i) others.emplace_back(work);
  work();
}

// From the second step on a run repeats, but for what the allocator makes of it: whoever has room
// to spare after two has it after all.
Trial Workbench::Play(const Variant& variant, Detail detail, int64_t most_played) {
  constexpr int kFewSteps = 2;
  constexpr int64_t kToSpareDivisor = 32;
  const Recipe& recipe = variant.recipe;
  const bool repeats = recipe.driver != Driver::kGenerate && recipe.batches.empty() &&
                       !recipe.evaluation && recipe.torch_empty_cache_steps == 0;
  if (detail == Detail::kFits && repeats && recipe.steps > kFewSteps) {
    const Trial trial = PlaySteps(variant, detail, most_played, kFewSteps);
    const Bytes left = memory_ - trial.context - trial.reserved;
    if (!trial.fits || left.count() > memory_.count() / kToSpareDivisor) return trial;
  }
  return PlaySteps(variant, detail, most_played, recipe.steps);
}

Trial Workbench::PlaySteps(const Variant& variant, Detail detail, int64_t most_played, int steps) {
  ++predictions_;
  Recipe recipe = variant.recipe;
  recipe.steps = steps;
  const int64_t accumulation = recipe.gradient_accumulation_steps;
  const int64_t played = std::min(accumulation, most_played);
  recipe.gradient_accumulation_steps = played;
  Platform platform = platform_;
  platform.allocator = variant.allocator;
  // A run that needs more than the whole device is not played to its end; but what is read at once
  // onto a device depends on the memory there is (caching_allocator_warmup).
  if (detail == Detail::kFits && !ReadsOntoDevice(recipe)) platform.memory_limit = memory_;
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
  if (prediction->out_of_memory) return trial;
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
