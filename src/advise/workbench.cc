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

// Runs that are kept for other allocators: as many as are under way at once, and some.
constexpr size_t kKeptRuns = 16;

// All micro-batches of a step lie on the device from its start: what those that are not played add.
// The model's buffers are inputs too, and there once.
Bytes InputsLeftOut(const Variant& variant, int64_t played, Bytes inputs_at_peak, Bytes buffers) {
  const int64_t left_out = variant.recipe.gradient_accumulation_steps - played;
  return Bytes((inputs_at_peak - buffers).count() / played * left_out);
}

Bytes InputsAtPeak(const Ledger& ledger) {
  return ledger.ComponentsAt(ledger.peak_event())[static_cast<size_t>(Component::kInputs)];
}

std::vector<bool> InputsOf(const Ledger& ledger) {
  std::vector<bool> inputs;
  for (const MemoryEvent& event : ledger.events()) {
    if (event.type != MemoryEvent::Type::kAlloc) continue;
    inputs.push_back(event.component == Component::kInputs);
  }
  return inputs;
}

// What is left of a recipe where it decides weights, gradients and optimizer states.
Recipe WithoutActivations(Recipe recipe) {
  const Recipe any;
  recipe.per_device_train_batch_size = any.per_device_train_batch_size;
  recipe.sequence_length = any.sequence_length;
  recipe.target_sequence_length = any.target_sequence_length;
  recipe.precision = any.precision;
  recipe.attn_implementation = any.attn_implementation;
  recipe.gradient_checkpointing = any.gradient_checkpointing;
  recipe.use_reentrant = any.use_reentrant;
  recipe.gradient_accumulation_steps = any.gradient_accumulation_steps;
  recipe.max_grad_norm = any.max_grad_norm;
  recipe.attention_mask = any.attention_mask;
  recipe.steps = any.steps;
  return recipe;
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
  Recipe recipe = variant.recipe;
  recipe.steps = steps;
  recipe.gradient_accumulation_steps = std::min(recipe.gradient_accumulation_steps, most_played);
  // Levers change the native allocator alone. What is read at once onto a device depends on the
  // memory there is.
  const bool shared = detail == Detail::kFits && !ReadsOntoDevice(recipe) &&
                      platform_.allocator.backend == AllocatorOptions::Backend::kNative;
  if (!shared) return Predicted(variant, recipe, detail, nullptr);

  std::unique_lock lock(mutex_);
  const auto same = std::ranges::find(
      runs_, recipe, [](const auto& entry) -> const Recipe& { return entry.first; });
  if (same != runs_.end()) {
    const std::shared_future<RunPointer> future = same->second;
    lock.unlock();
    const RunPointer& run = future.get();
    if (run) {
      if (const std::optional<Trial> trial = Replayed(variant, *run, recipe)) return *trial;
    }
    return Predicted(variant, recipe, detail, nullptr);
  }
  std::promise<RunPointer> promise;
  runs_.emplace_back(recipe, promise.get_future().share());
  if (runs_.size() > kKeptRuns) runs_.pop_front();
  lock.unlock();
  RunPointer run;
  Trial trial = Predicted(variant, recipe, detail, &run);
  promise.set_value(std::move(run));
  return trial;
}

Trial Workbench::Predicted(const Variant& variant, const Recipe& recipe, Detail detail,
                           RunPointer* keep) {
  ++predictions_;
  Platform platform = platform_;
  platform.allocator = variant.allocator;
  // A run that needs more than the whole device is not played to its end; but what is read at once
  // onto a device depends on the memory there is (caching_allocator_warmup).
  if (detail == Detail::kFits && !ReadsOntoDevice(recipe)) {
    platform.memory_limit = HasNoHope(recipe) ? Bytes(0) : memory_;
  }
  CostMeter meter(platform.gpu, recipe.precision);
  Result<Prediction> prediction = Predict(config_, recipe, platform, &meter);
  Trial trial;
  if (!prediction.ok()) {
    trial.refused = prediction.error().message;
    return trial;
  }
  const Ledger& ledger = prediction->ledger;
  const int64_t played = recipe.gradient_accumulation_steps;
  const Bytes left_out = InputsLeftOut(variant, played, InputsAtPeak(ledger), prediction->buffers);
  trial.context = ledger.context();
  trial.allocated = ledger.peak_allocated();
  trial.reserved = ledger.peak_reserved();
  trial.attn_used = prediction->attn_used;
  const auto keep_run = [&] {
    if (keep == nullptr) return;
    *keep = std::make_shared<Run>(!prediction->out_of_memory, std::move(prediction->trace),
                                  InputsOf(ledger), prediction->buffers, trial.context,
                                  trial.attn_used, meter);
  };
  if (prediction->out_of_memory) {
    keep_run();
    return trial;
  }
  NoteStanding(recipe, ledger);
  const Bytes cap = memory_ - trial.context - left_out;
  trial.fits =
      cap >= trial.reserved || (cap >= trial.allocated && prediction->trace.Completes(cap));
  trial.cost = meter.Step(recipe.steps, played, variant.recipe.gradient_accumulation_steps);
  if (detail == Detail::kFits) {
    keep_run();
    return trial;
  }
  trial.needed = trial.context + left_out +
                 prediction->trace.SmallestCap(trial.allocated - Bytes(1), trial.reserved);
  if (const PhaseMark* mark = ledger.PhaseOf(ledger.peak_event())) trial.peak_phase = mark->name;
  trial.at_peak = ledger.ComponentsAt(ledger.peak_event());
  return trial;
}

void Workbench::NoteStanding(const Recipe& recipe, const Ledger& ledger) {
  if (recipe.driver == Driver::kGenerate) return;
  Standing standing{WithoutActivations(recipe), Bytes(0), Bytes(0)};
  const auto known = [&] {
    return std::ranges::find(standing_, standing.recipe, &Standing::recipe) != standing_.end();
  };
  std::unique_lock lock(mutex_);
  if (known()) return;
  lock.unlock();
  for (const ComponentBytes& at_mark : ledger.ComponentsAtMarks()) {
    const auto of = [&](Component component) { return at_mark[static_cast<size_t>(component)]; };
    const Bytes trained = of(Component::kWeights) + of(Component::kGradients);
    standing.trained = std::max(standing.trained, trained);
    standing.all = std::max(standing.all, trained + of(Component::kOptimizer));
  }
  lock.lock();
  standing_.push_back(std::move(standing));
}

bool Workbench::HasNoHope(const Recipe& recipe) {
  // Blocks may be longer than what lies in them, by other ends in another run.
  constexpr int64_t kEndsDivisor = 64;
  if (recipe.driver == Driver::kGenerate) return false;
  Recipe wanted = WithoutActivations(recipe);
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(standing_, [&](const Standing& standing) {
    const Optim optim = standing.recipe.optim;
    const Bytes bytes = optim == recipe.optim ? standing.all : standing.trained;
    if (bytes - Bytes(bytes.count() / kEndsDivisor) <= memory_) return false;
    wanted.optim = optim;
    return standing.recipe == wanted;
  });
}

std::optional<Trial> Workbench::Replayed(const Variant& variant, const Run& run,
                                         const Recipe& recipe) const {
  const AllocationTrace::Usage usage = run.trace.UsageUnder(variant.allocator, memory_, run.inputs);
  Trial trial;
  trial.context = run.context;
  trial.allocated = usage.peak_allocated;
  trial.reserved = usage.peak_reserved;
  trial.attn_used = run.attn_used;
  if (!usage.completes) return trial;
  if (!run.completed) return std::nullopt;
  const int64_t played = recipe.gradient_accumulation_steps;
  const Bytes cap =
      memory_ - trial.context - InputsLeftOut(variant, played, usage.marked_at_peak, run.buffers);
  trial.fits = cap >= trial.reserved ||
               (cap >= trial.allocated && run.trace.CompletesUnder(variant.allocator, cap));
  trial.cost = run.meter.Step(recipe.steps, played, variant.recipe.gradient_accumulation_steps);
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
