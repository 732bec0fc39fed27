// SPDX-License-Identifier: Apache-2.0
#include "advise/workbench.h"

#include <algorithm>

#include "base/format.h"

namespace headroom {
namespace {

// Micro-batches that a trial plays. The second finds the gradients of the first; from there on each
// repeats the one before.
constexpr int64_t kPlayedMicroBatches = 2;

bool FitsUnder(const Prediction& prediction, Bytes cap) {
  if (cap >= prediction.ledger.peak_reserved()) return true;
  if (cap < prediction.ledger.peak_allocated()) return false;
  return prediction.trace.Completes(cap);
}

}  // namespace

std::string KeyOf(const Variant& variant) {
  const Recipe& r = variant.recipe;
  const AllocatorOptions& a = variant.allocator;
  return Format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} | {} {} {} {}",
                static_cast<int>(r.task), static_cast<int>(r.driver), r.per_device_train_batch_size,
                r.sequence_length, r.target_sequence_length, Name(r.precision),
                Name(r.weights_dtype.value_or(DType::kFloat32)), Name(r.optim),
                Name(r.attn_implementation), r.gradient_checkpointing, r.use_reentrant,
                r.gradient_accumulation_steps, r.max_grad_norm, r.attention_mask, r.steps,
                static_cast<int>(a.backend), a.max_split_size.count(), a.roundup_power2_divisions,
                a.garbage_collection_threshold);
}

const Trial& Workbench::TryWith(const Variant& variant, Detail detail) {
  const std::string key = KeyOf(variant);
  const auto known = trials_.find(key);
  if (known != trials_.end()) {
    const bool enough = detail == Detail::kFits || known->second.needed || !known->second.ran();
    if (enough) return known->second;
  }
  return trials_[key] = Play(variant, detail);
}

Trial Workbench::Play(const Variant& variant, Detail detail) {
  ++predictions_;
  Recipe recipe = variant.recipe;
  const int64_t accumulation = recipe.gradient_accumulation_steps;
  recipe.gradient_accumulation_steps = std::min(accumulation, kPlayedMicroBatches);
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
  trial.context = ledger.context();
  trial.allocated = ledger.peak_allocated();
  trial.reserved = ledger.peak_reserved();
  trial.attn_used = prediction->attn_used;
  trial.fits = FitsUnder(*prediction, memory_ - trial.context);
  trial.cost = meter.Step(recipe.steps, recipe.gradient_accumulation_steps, accumulation);
  if (detail == Detail::kFits) return trial;
  trial.needed =
      trial.context + prediction->trace.SmallestCap(trial.allocated - Bytes(1), trial.reserved);
  if (const PhaseMark* mark = ledger.PhaseOf(ledger.peak_event())) trial.peak_phase = mark->name;
  trial.at_peak = ledger.ComponentsAt(ledger.peak_event());
  return trial;
}

bool Workbench::FitsPlayedOut(const Variant& variant) {
  if (variant.recipe.gradient_accumulation_steps <= kPlayedMicroBatches) return Try(variant).fits;
  ++predictions_;
  Platform platform = platform_;
  platform.allocator = variant.allocator;
  const Result<Prediction> prediction = Predict(config_, variant.recipe, platform);
  return prediction.ok() && FitsUnder(*prediction, memory_ - prediction->ledger.context());
}

}  // namespace headroom
