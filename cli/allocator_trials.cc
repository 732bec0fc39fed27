// SPDX-License-Identifier: Apache-2.0
#include "allocator_trials.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "base/format.h"
#include "observe/holders.h"
#include "predict/allocator.h"
#include "report/text.h"

namespace headroom::cli {
namespace {

using observe::kNoEvent;
using predict::AllocatorModel;

// Some forty steps of a model of 32 layers. Reserved memory is steady long before; playing every
// request of a recording of hours would take longer than reading it.
constexpr uint32_t kMostEvents = 1'000'000;

// Where the recording ends for a trial: nowhere, or at the allocation that failed.
struct Ending {
  uint32_t event = kNoEvent;
  Bytes requested;
  // What could be reserved: at least so much, since it was, and at most that, since the request was
  // refused.
  Bytes least;
  Bytes most;
};

class Trial {
 public:
  Trial(const observe::Replay& replay, const observe::Classification& classes,
        std::vector<uint32_t> releases, const Ending& ending)
      : replay_(replay), classes_(classes), releases_(std::move(releases)), ending_(ending) {}

  AllocatorTrial Play(std::string name, const AllocatorOptions& options,
                      std::span<const observe::AllocatorStep> steps) {
    AllocatorTrial trial{std::move(name), Bytes(0), std::nullopt};
    if (ending_.event == kNoEvent) {
      Run(options, steps, std::nullopt, trial.reserved);
    } else if (Run(options, steps, ending_.least, trial.reserved)) {
      trial.serves = true;
    } else if (!Run(options, steps, ending_.most, trial.reserved)) {
      trial.serves = false;
    }
    return trial;
  }

 private:
  // Whether every request was served; `reserved` is the highest.
  bool Run(const AllocatorOptions& options, std::span<const observe::AllocatorStep> steps,
           std::optional<Bytes> limit, Bytes& reserved) {
    allocator_ = predict::MakeAllocator(options, limit);
    uint32_t last = 0;
    for (const observe::AllocatorStep& step : steps) last = std::max(last, step.block);
    handles_.assign(size_t{last} + 1, std::nullopt);
    release_ = 0;
    kernels_loaded_ = false;
    reserved = Bytes(0);
    for (const observe::AllocatorStep& step : steps) {
      const observe::BlockLife& block = replay_.blocks[step.block];
      const uint32_t event = step.is_alloc ? block.alloc_event : block.free_event;
      // kNoEvent of an allocation is the time before the trace.
      if (event != kNoEvent && event > ending_.event) break;
      ReleaseBefore(event);
      if (!step.is_alloc) {
        Free(step.block);
      } else if (!Alloc(step.block)) {
        return false;
      }
      reserved = std::max(reserved, allocator_->reserved());
    }
    if (ending_.event == kNoEvent) return true;
    const bool served = allocator_->Alloc(ending_.requested).has_value();
    reserved = std::max(reserved, allocator_->reserved());
    return served;
  }

  // The program called empty_cache() here, or the allocator did before it failed.
  void ReleaseBefore(uint32_t event) {
    bool any = false;
    while (release_ < releases_.size() && event != kNoEvent && releases_[release_] < event) {
      any = true;
      ++release_;
    }
    if (any) allocator_->EmptyCache();
  }

  bool Alloc(uint32_t block) {
    const observe::BlockClass& c = classes_.blocks[block];
    const bool loading = c.stage == observe::Stage::kLoad || replay_.blocks[block].from_before();
    if (!loading && !kernels_loaded_) {
      allocator_->KernelsLoaded();
      kernels_loaded_ = true;
    }
    if (c.component == Component::kWorkspace) allocator_->CublasHandleCreated();
    const auto allocation = allocator_->Alloc(Bytes(replay_.blocks[block].requested()));
    if (allocation) handles_[block] = allocation->handle;
    return allocation.has_value();
  }

  void Free(uint32_t block) {
    if (handles_[block]) allocator_->Free(*handles_[block]);
    handles_[block].reset();
  }

  const observe::Replay& replay_;
  const observe::Classification& classes_;
  const std::vector<uint32_t> releases_;  // events of segments that were given back
  const Ending ending_;
  std::unique_ptr<AllocatorModel> allocator_;
  std::vector<std::optional<AllocatorModel::Handle>> handles_;  // by block
  size_t release_ = 0;
  bool kernels_loaded_ = false;
};

AllocatorOptions OptionsOf(const observe::Snapshot& snapshot) {
  AllocatorOptions options;
  if (!snapshot.settings) return options;
  if (snapshot.settings->max_split_size)
    options.max_split_size = *snapshot.settings->max_split_size;
  options.garbage_collection_threshold = snapshot.settings->garbage_collection_threshold;
  const auto& divisions = snapshot.settings->roundup_power2_divisions;
  if (!divisions.empty()) {
    options.roundup_power2_divisions = static_cast<int>(divisions.begin()->second);
  }
  return options;
}

Ending EndingOf(const observe::Replay& replay) {
  if (replay.ooms.empty()) return {};
  const observe::OomEvent& oom = replay.ooms.back();
  const Bytes reserved = observe::ReservedAfter(replay, oom.event);
  // Where the device itself was full, its free memory says how much there was.
  if (oom.device_free < oom.requested) {
    const Bytes limit = reserved + oom.device_free;
    return {oom.event, oom.requested, limit, limit};
  }
  // Elsewhere a limit on the process refused the request: less than that was left under it.
  return {oom.event, oom.requested, std::max(reserved, replay.peak_reserved),
          reserved + oom.requested - Bytes(1)};
}

std::vector<uint32_t> Releases(const observe::Replay& replay) {
  std::vector<uint32_t> releases;
  for (const observe::SegmentEvent& segment : replay.segments) {
    if (segment.action == observe::Action::kSegmentFree) releases.push_back(segment.event);
  }
  return releases;
}

}  // namespace

AllocatorTrials PlayThroughAllocators(const observe::Snapshot& snapshot,
                                      const observe::Replay& replay,
                                      const observe::Classification& classes) {
  AllocatorTrials result;
  if (replay.events.count == 0 || replay.blocks.empty()) return result;
  const Ending ending = EndingOf(replay);
  uint32_t end = kNoEvent;
  if (replay.events.count > kMostEvents && ending.event == kNoEvent) {
    end = replay.events.first + kMostEvents;
    result.note = Format("other allocators were played through the first {} events of {}",
                         Thousands(kMostEvents), Thousands(replay.events.count));
  }
  const std::vector<observe::AllocatorStep> steps = observe::AllocatorSteps(replay, end);
  Trial trial(replay, classes, Releases(replay), ending);
  AllocatorOptions options = OptionsOf(snapshot);
  result.trials.push_back(trial.Play("native", options, steps));
  options.backend = AllocatorOptions::Backend::kExpandableSegments;
  result.trials.push_back(trial.Play("expandable_segments:True", options, steps));
  return result;
}

}  // namespace headroom::cli
