// SPDX-License-Identifier: Apache-2.0
#include "advise/advice.h"

#include <algorithm>
#include <future>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "advise/why_not.h"
#include "base/format.h"

namespace headroom {
namespace {

constexpr int64_t kMostSamples = 1 << 20;
constexpr int64_t kMostTokens = 1 << 24;
constexpr size_t kLargestCombination = 3;
constexpr size_t kCombinationsShown = 5;
// Trials spent on combinations of each Effect.
constexpr size_t kTrialsPerEffect = 32;
constexpr size_t kSolvedAtOnce = 4;
// A change that saves less than this fraction is none.
constexpr double kNegligible = 0.002;

using Progress = std::function<void(int predictions)>;

// Divisors of the batch below it, largest first: micro-batches that keep the samples of a step, and
// make no more of them than anybody accumulates.
std::vector<int64_t> MicroBatches(const Recipe& recipe) {
  constexpr int64_t kMostAccumulated = 1 << 16;
  const int64_t batch = recipe.per_device_train_batch_size;
  std::vector<int64_t> divisors;
  if (recipe.driver == Driver::kGenerate) return divisors;
  for (int64_t d = batch / 2; d >= 1; --d) {
    if (batch / d > kMostAccumulated / recipe.gradient_accumulation_steps) break;
    if (batch % d == 0) divisors.push_back(d);
  }
  return divisors;
}

Variant WithMicroBatch(Variant variant, int64_t micro) {
  Recipe& recipe = variant.recipe;
  recipe.gradient_accumulation_steps *= recipe.per_device_train_batch_size / micro;
  recipe.per_device_train_batch_size = micro;
  return variant;
}

std::string MicroBatchName(const Variant& variant) {
  return Format("micro-batch {} x {}", variant.recipe.per_device_train_batch_size,
                variant.recipe.gradient_accumulation_steps);
}

auto RankOf(const Change& change) {
  return std::tuple(change.effect, change.time_change, change.parts.size());
}

// A lever that applies to the asked recipe, and what it does alone.
struct Usable {
  const Lever* lever;
  double time_change;
  Bytes needed;
};

class Advisor {
 public:
  Advisor(Workbench& bench, const Variant& asked, const Progress& progress)
      : bench_(bench), progress_(progress) {
    advice_.asked_variant = asked;
    advice_.asked = bench.MeasurePlayedOut(asked);
  }

  Result<Advice> Run(const AdviceScope& scope) {
    if (!advice_.asked.ran()) return Error::BadInput(advice_.asked.refused);
    // The searches read what was asked and know nothing of each other.
    std::future<Status> batch, sequence;
    if (scope.batch) batch = std::async(std::launch::async, [this] { return FindBatch(); });
    if (scope.sequence) {
      sequence = std::async(std::launch::async, [this] { return FindSequence(); });
    }
    const Status lora = scope.lora_rank ? FindLoraRank() : Status();
    if (scope.changes) MeasureAlone();
    if (batch.valid()) HEADROOM_RETURN_IF_ERROR(batch.get());
    if (sequence.valid()) HEADROOM_RETURN_IF_ERROR(sequence.get());
    HEADROOM_RETURN_IF_ERROR(lora);
    if (!scope.changes) return std::move(advice_);
    TryAlone();
    TryWithoutHope();
    if (!advice_.asked.fits) TryTogether();
    std::ranges::stable_sort(advice_.alone, {}, RankOf);
    std::ranges::stable_sort(advice_.together, {}, RankOf);
    if (advice_.together.size() > kCombinationsShown) advice_.together.resize(kCombinationsShown);
    return std::move(advice_);
  }

 private:
  const Variant& asked() const { return advice_.asked_variant; }
  LeverContext context() const { return {bench_.platform().gpu, advice_.asked.attn_used}; }

  void ShowProgress() {
    if (!progress_) return;
    const std::lock_guard lock(progress_mutex_);
    progress_(bench_.predictions());
  }

  const Trial& Try(const Variant& variant) {
    ShowProgress();
    return bench_.Try(variant);
  }

  // ---- The largest that fits ----

  Result<Fit> FitOf(const Variant& variant) {
    const Trial& trial = Try(variant);
    if (!trial.ran()) return Fit::kRefused;
    return trial.fits ? Fit::kFits : Fit::kTooLarge;
  }

  using VariantOfSize = std::function<Variant(int64_t)>;

  // The largest size that fits when it is played to its last micro-batch.
  Result<Largest> FindLargestOf(const VariantOfSize& variant_of, int64_t start, int64_t most) {
    const auto fit = [&](int64_t size) { return FitOf(variant_of(size)); };
    HEADROOM_ASSIGN_OR_RETURN(Largest largest, FindLargest(fit, start, most));
    while (largest.value && !bench_.FitsPlayedOut(variant_of(*largest.value))) {
      largest.limited_by_memory = true;
      if (--*largest.value == 0) largest.value.reset();
    }
    return largest;
  }

  Status FindBatch() {
    const auto with_batch = [&](int64_t batch) {
      Variant variant = asked();
      variant.recipe.per_device_train_batch_size = batch;
      return variant;
    };
    const int64_t start = asked().recipe.per_device_train_batch_size;
    HEADROOM_ASSIGN_OR_RETURN(advice_.batch, FindLargestOf(with_batch, start, kMostSamples));
    return {};
  }

  Status FindSequence() {
    const int64_t start = asked().recipe.sequence_length;
    if (start == 0) return {};
    const auto with_tokens = [&](int64_t tokens) {
      Variant variant = asked();
      variant.recipe.sequence_length = tokens;
      return variant;
    };
    const std::optional<int64_t> positions = bench_.config().MaybeInt("max_position_embeddings");
    const int64_t most = std::max(positions.value_or(kMostTokens), start);
    HEADROOM_ASSIGN_OR_RETURN(advice_.sequence, FindLargestOf(with_tokens, start, most));
    return {};
  }

  // Up to the width of the model: an adapter of more is larger than what it stands beside.
  Status FindLoraRank() {
    if (!asked().recipe.lora) return {};
    const auto with_rank = [&](int64_t rank) {
      Variant variant = asked();
      variant.recipe.lora->r = rank;
      return variant;
    };
    const int64_t start = asked().recipe.lora->r;
    const int64_t width = bench_.config().MaybeInt("hidden_size").value_or(start);
    HEADROOM_ASSIGN_OR_RETURN(advice_.lora_rank,
                              FindLargestOf(with_rank, start, std::max(width, start)));
    return {};
  }

  // ---- Changes ----

  Change MakeChange(std::vector<std::string> parts, const Variant& variant, Effect effect) {
    Change change{std::move(parts), variant, bench_.Measure(variant), effect, Bytes(0), 0, ""};
    if (!change.trial.ran()) return change;
    change.saved = *advice_.asked.needed - *change.trial.needed;
    change.time_change = change.trial.cost.seconds() / advice_.asked.cost.seconds() - 1;
    return change;
  }

  bool Helps(const Change& change) const {
    return static_cast<double>(change.saved.count()) >
           kNegligible * static_cast<double>(advice_.asked.needed->count());
  }

  void MeasureAlone() {
    std::vector<Variant> variants;
    for (const Lever& lever : Levers()) {
      Variant variant = asked();
      if (lever.apply(variant, context())) variants.push_back(std::move(variant));
    }
    if (asked().recipe.driver != Driver::kGenerate) variants.push_back(WithMoreAccumulation());
    bench_.MeasureAll(variants);
  }

  Variant WithMoreAccumulation() const {
    Variant more = asked();
    more.recipe.gradient_accumulation_steps *= 2;
    return more;
  }

  void TryAlone() {
    for (const Lever& lever : Levers()) {
      Variant variant = asked();
      if (!lever.apply(variant, context())) continue;
      ShowProgress();
      Change change = MakeChange({std::string(lever.name)}, variant, lever.effect);
      change.note = lever.note;
      if (change.trial.ran()) {
        usable_.push_back({&lever, change.time_change, *change.trial.needed});
      }
      if (change.trial.ran() && Helps(change)) {
        advice_.alone.push_back(std::move(change));
      } else {
        advice_.without_help.push_back(
            {std::string(lever.name), WhyNot(advice_.asked, change.trial, lever.lowers)});
      }
    }
    TryMicroBatch();
    PreferOneCheckpointing();
  }

  // The largest micro-batch that fits; the smallest, when none does.
  void TryMicroBatch() {
    const std::vector<int64_t> sizes = MicroBatches(asked().recipe);
    if (sizes.empty()) return;
    const std::optional<int64_t> fitting = LargestMicroBatch(asked());
    auto size = std::ranges::find(sizes, fitting.value_or(sizes.back()));
    while (size + 1 != sizes.end() && !bench_.FitsPlayedOut(WithMicroBatch(asked(), *size))) ++size;
    const Variant variant = WithMicroBatch(asked(), *size);
    Change change = MakeChange({MicroBatchName(variant)}, variant, Effect::kSame);
    change.note = "the same samples a step, in more and smaller forward passes";
    change.trial.fits = bench_.FitsPlayedOut(variant);
    if (Helps(change)) {
      advice_.alone.push_back(std::move(change));
    } else {
      advice_.without_help.push_back(
          {MicroBatchName(variant), WhyNot(advice_.asked, change.trial, Component::kActivations)});
    }
  }

  // Both forms of checkpointing differ by little: combinations use the one that needs less.
  void PreferOneCheckpointing() {
    const auto of_group = [](const Usable& u) { return u.lever->group == "checkpointing"; };
    const auto best = std::ranges::min_element(
        usable_, {}, [&](const Usable& u) { return std::pair(!of_group(u), u.needed); });
    if (best == usable_.end() || !of_group(*best)) return;
    const Lever* kept = best->lever;
    std::erase_if(usable_, [&](const Usable& u) { return of_group(u) && u.lever != kept; });
  }

  // What people try, and what cannot help.
  void TryWithoutHope() {
    advice_.without_help.push_back(
        {"torch.cuda.empty_cache()",
         "the allocator gives its cached blocks back by itself before it fails, and what is needed "
         "already counts that"});
    if (asked().recipe.driver == Driver::kGenerate) return;
    const Change change = MakeChange({}, WithMoreAccumulation(), Effect::kSame);
    // What is left between blocks can fall either way by a few MiB.
    constexpr double kLuck = 0.01;
    const auto saved = static_cast<double>(change.saved.count());
    const auto needed = static_cast<double>(advice_.asked.needed->count());
    if (change.trial.ran() && saved < kLuck * needed) {
      advice_.without_help.push_back(
          {"accumulation alone",
           "each forward and backward stays as large as it is: only a smaller micro-batch lowers "
           "the peak"});
    }
  }

  // ---- Combinations ----

  using Subset = std::vector<const Usable*>;

  Variant Applied(const Subset& subset) const {
    Variant variant = asked();
    for (const Usable* use : subset) use->lever->apply(variant, context());
    return variant;
  }

  static Effect EffectOf(const Subset& subset) {
    Effect effect = Effect::kSame;
    for (const Usable* use : subset) effect = std::max(effect, use->lever->effect);
    return effect;
  }

  // The largest micro-batch of `variant` that fits, taking that smaller ones need less.
  std::optional<int64_t> LargestMicroBatch(const Variant& variant) {
    const std::vector<int64_t> sizes = MicroBatches(variant.recipe);
    const auto first = std::ranges::partition_point(
        sizes, [&](int64_t micro) { return !Try(WithMicroBatch(variant, micro)).fits; });
    if (first == sizes.end()) return std::nullopt;
    return *first;
  }

  // Subsets of at most kLargestCombination levers of different groups, cheapest first.
  std::vector<Subset> Subsets() const {
    std::vector<Subset> subsets = {{}};
    for (const Usable& use : usable_) {
      const size_t before = subsets.size();
      for (size_t i = 0; i < before; ++i) {
        const bool taken = std::ranges::any_of(subsets[i], [&](const Usable* other) {
          return other->lever->group == use.lever->group;
        });
        if (taken || subsets[i].size() == kLargestCombination) continue;
        Subset larger = subsets[i];
        larger.push_back(&use);
        subsets.push_back(std::move(larger));
      }
    }
    std::ranges::stable_sort(subsets, {}, [](const Subset& subset) {
      double time = 0;
      for (const Usable* use : subset) time += use->time_change;
      return std::tuple(EffectOf(subset), time, subset.size());
    });
    return subsets;
  }

  // A combination that fits; without a micro-batch, as many samples at once as asked.
  struct Solution {
    Subset subset;
    std::optional<int64_t> micro;
    double seconds;
  };

  Variant VariantOf(const Subset& subset, std::optional<int64_t> micro) const {
    const Variant variant = Applied(subset);
    return micro ? WithMicroBatch(variant, *micro) : variant;
  }

  std::optional<Solution> Solve(const Subset& subset) {
    const Variant variant = Applied(subset);
    if (Try(variant).fits) return Shrunk({subset, std::nullopt, 0});
    const std::optional<int64_t> micro = LargestMicroBatch(variant);
    if (!micro) return std::nullopt;
    return Shrunk({subset, micro, 0});
  }

  // Without the levers that it does not need.
  Solution Shrunk(Solution solution) {
    for (size_t i = 0; i < solution.subset.size();) {
      Subset smaller = solution.subset;
      smaller.erase(smaller.begin() + static_cast<std::ptrdiff_t>(i));
      const bool fits = Try(VariantOf(smaller, solution.micro)).fits;
      if (fits && EffectOf(smaller) <= EffectOf(solution.subset)) {
        solution.subset = std::move(smaller);
        i = 0;  // what was needed beside it may not be needed any more
      } else {
        ++i;
      }
    }
    solution.seconds = Try(VariantOf(solution.subset, solution.micro)).cost.seconds();
    return solution;
  }

  // Whether a solution with fewer changes, or the same, is as fast.
  bool Dominated(const Solution& solution) const {
    return std::ranges::any_of(solutions_, [&](const Solution& other) {
      const bool within = std::ranges::all_of(other.subset, [&](const Usable* use) {
        return std::ranges::find(solution.subset, use) != solution.subset.end();
      });
      return within && other.seconds <= solution.seconds * (1 + kNegligible);
    });
  }

  void TryTogether() {
    size_t spent_before = bench_.known();
    Effect effect = Effect::kSame;
    const std::vector<Subset> subsets = Subsets();
    for (size_t first = 0, last = 0; first < subsets.size(); first = last) {
      if (EffectOf(subsets[first]) != effect) {
        effect = EffectOf(subsets[first]);
        spent_before = bench_.known();
      }
      while (last < std::min(subsets.size(), first + kSolvedAtOnce) &&
             EffectOf(subsets[last]) == effect) {
        ++last;
      }
      if (bench_.known() - spent_before > kTrialsPerEffect) continue;
      SolveAll(std::span(subsets).subspan(first, last - first));
    }
    for (const Effect most : {Effect::kSame, Effect::kRounding, Effect::kTraining}) {
      if (solutions_.empty()) Add(Solve(Everything(most)));
    }
    AddAllTogether();
  }

  // Side by side; that they are always as many keeps the answer the same on every machine.
  void SolveAll(std::span<const Subset> subsets) {
    std::vector<std::future<std::optional<Solution>>> solved;
    for (const Subset& subset : subsets) {
      solved.push_back(std::async(std::launch::async, [this, &subset] { return Solve(subset); }));
    }
    for (auto& solution : solved) Add(solution.get());
  }

  void Add(std::optional<Solution> solution) {
    if (solution && !Dominated(*solution)) solutions_.push_back(*std::move(solution));
  }

  // Of each group the lever that alone needs the least.
  Subset Everything(Effect most) const {
    Subset all;
    for (const Usable& use : usable_) {
      if (use.lever->effect > most) continue;
      const auto same = std::ranges::find_if(
          all, [&](const Usable* other) { return other->lever->group == use.lever->group; });
      if (same == all.end()) {
        all.push_back(&use);
      } else if (use.needed < (*same)->needed) {
        *same = &use;
      }
    }
    return all;
  }

  // Solutions are few, and playing one out is the longest that is asked of a run: side by side.
  void AddAllTogether() {
    std::vector<std::future<std::optional<Change>>> changes;
    for (const Solution& solution : solutions_) {
      changes.push_back(
          std::async(std::launch::async, [this, &solution] { return Together(solution); }));
    }
    for (auto& future : changes) {
      if (std::optional<Change> change = future.get()) {
        advice_.together.push_back(*std::move(change));
      }
    }
  }

  std::optional<Change> Together(const Solution& solution) {
    const Variant variant = VariantOf(solution.subset, solution.micro);
    std::vector<std::string> parts;
    for (const Usable* use : solution.subset) parts.emplace_back(use->lever->name);
    if (solution.micro) parts.push_back(MicroBatchName(variant));
    if (parts.size() < 2 || !bench_.FitsPlayedOut(variant)) return std::nullopt;
    return MakeChange(std::move(parts), variant, EffectOf(solution.subset));
  }

  Workbench& bench_;
  const Progress& progress_;
  std::mutex progress_mutex_;
  Advice advice_;
  std::vector<Usable> usable_;
  std::vector<Solution> solutions_;
};

}  // namespace

const Change* Advice::Best() const {
  if (asked.fits) return nullptr;
  const Change* best = nullptr;
  for (const std::vector<Change>* list : {&alone, &together}) {
    for (const Change& change : *list) {
      if (!change.trial.fits) continue;
      if (best == nullptr || RankOf(change) < RankOf(*best)) best = &change;
    }
  }
  return best;
}

Result<Advice> Advise(Workbench& bench, const Variant& asked, const AdviceScope& scope,
                      const Progress& progress) {
  return Advisor(bench, asked, progress).Run(scope);
}

}  // namespace headroom
