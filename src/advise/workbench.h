// SPDX-License-Identifier: Apache-2.0
//
// Workbench: tries variants of one model on one device, each once. Several threads may try at a
// time.
//
// A trial is a prediction and its verdict. What the allocator needs is found by replaying the
// trial's own allocations under caps (AllocationTrace); the model is run once.
#pragma once

#include <atomic>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "advise/levers.h"
#include "advise/step_cost.h"
#include "base/bytes.h"
#include "base/result.h"
#include "ledger/ledger.h"
#include "model/config.h"
#include "predict/allocation_trace.h"
#include "predict/predict.h"

namespace headroom {

struct Trial {
  std::string refused;  // why the variant cannot run; empty when it can
  bool fits = false;
  Bytes context;    // outside the allocator
  Bytes allocated;  // peaks, without a limit
  Bytes reserved;
  std::optional<Bytes> needed;  // device memory: the smallest cap that completes, and the context
  StepCost cost;
  AttnImplementation attn_used = AttnImplementation::kAuto;
  std::string peak_phase;  // name of the mark that closes the phase of the peak
  ComponentBytes at_peak{};

  bool ran() const { return refused.empty(); }
};

class Workbench {
 public:
  // `config` outlives it. `memory` is what the process may hold on the device.
  Workbench(const ModelConfig& config, const Platform& platform, Bytes memory)
      : config_(config), platform_(platform), memory_(memory) {}

  // Whether `variant` fits. A variant that cannot run (an optimizer that is not modelled, a
  // sequence beyond the positions) is a trial that was refused, not an error. Accumulation is
  // played for few micro-batches: they repeat, but for the inputs, which all lie on the device from
  // the start.
  const Trial& Try(const Variant& variant) { return TryWith(variant, Detail::kFits); }
  // And what it needs.
  const Trial& Measure(const Variant& variant) { return TryWith(variant, Detail::kNeeds); }
  // Measures those of `variants` that are not known yet, side by side.
  void MeasureAll(std::span<const Variant> variants);
  // The same of a variant played to its last micro-batch; beyond 32 of them, counts only what the
  // further ones leave on the device from the start: their inputs.
  Trial MeasurePlayedOut(const Variant& variant);
  bool FitsPlayedOut(const Variant& variant);

  Bytes memory() const { return memory_; }
  const Platform& platform() const { return platform_; }
  const ModelConfig& config() const { return config_; }
  int predictions() const { return predictions_; }
  // Variants tried so far. Unlike predictions, the same whatever ran side by side.
  size_t known();

 private:
  enum class Detail { kFits, kNeeds };
  // The trial that is known of `variant`, if it tells enough. REQUIRES: mutex_ is held.
  const Trial* Find(const Variant& variant, Detail detail) const;
  const Trial& TryWith(const Variant& variant, Detail detail);
  Trial Play(const Variant& variant, Detail detail, int64_t most_played);
  // At most `most_played` micro-batches of each of `steps`.
  Trial PlaySteps(const Variant& variant, Detail detail, int64_t most_played, int steps);

  // What a run was: enough to tell how it fares under another allocator, if that is no better than
  // the one it failed under.
  struct Run {
    bool completed;
    AllocationTrace trace;
    std::vector<bool> inputs;  // whether an allocation is one, by number
    Bytes buffers;
    Bytes context;
    AttnImplementation attn_used;
    CostMeter meter;
  };
  using RunPointer = std::shared_ptr<const Run>;  // null: was refused
  // A trial of `variant`, of which `recipe` is what is played; `keep`, if set, gets the run.
  Trial Predicted(const Variant& variant, const Recipe& recipe, Detail detail, RunPointer* keep);
  // The same of whether it fits, from a run of the same recipe; unset where that ended too early.
  std::optional<Trial> Replayed(const Variant& variant, const Run& run, const Recipe& recipe) const;

  // What stands on the device after a step, whatever its batch: of the runs that got that far.
  struct Standing {
    Recipe recipe;  // but for the batch and what else decides activations alone
    Bytes trained;  // weights and gradients
    Bytes all;      // and the optimizer's states
  };
  void NoteStanding(const Recipe& recipe, const Ledger& ledger);
  // Whether so much of it is known to stand that no batch fits.
  bool HasNoHope(const Recipe& recipe);

  const ModelConfig& config_;
  const Platform platform_;
  const Bytes memory_;
  struct Known {
    Variant variant;
    Detail detail;
    Trial trial;
  };
  std::mutex mutex_;          // of the trials, the runs and what stands
  std::deque<Known> trials_;  // whose references last
  // The newest runs, by what was played; those that are under way come to be.
  std::deque<std::pair<Recipe, std::shared_future<RunPointer>>> runs_;
  std::deque<Standing> standing_;
  std::atomic<int> predictions_ = 0;
};

}  // namespace headroom
