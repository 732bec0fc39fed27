// SPDX-License-Identifier: Apache-2.0
#include "observe/holders.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "base/format.h"
#include "observe/deaths.h"

namespace headroom::observe {
namespace {

using Place = std::pair<StackId, Component>;

bool IsWorthReading(FrameFacts facts) {
  return !Has(facts, FrameFact::kPlumbing) && !Has(facts, FrameFact::kAllocator);
}

std::string FrameText(const Snapshot& snapshot, const Frame& frame, bool python) {
  const std::string_view name = snapshot.strings.Get(frame.name);
  if (!python) return std::string(name.substr(0, name.find('(')));
  return Format("{}:{} {}", BaseName(snapshot.strings.Get(frame.filename)), frame.line, name);
}

// Bytes alive by place while the recording is walked from step end to step end.
class LiveByPlace {
 public:
  LiveByPlace(const Replay& replay, const Classification& classes)
      : replay_(replay), deaths_(replay) {
    std::map<Place, uint32_t> known;
    place_of_.reserve(replay.blocks.size());
    for (size_t i = 0; i < replay.blocks.size(); ++i) {
      const BlockLife& block = replay.blocks[i];
      const Place place{block.stack, classes.blocks[i].component};
      const auto [entry, added] = known.try_emplace(place, static_cast<uint32_t>(places_.size()));
      if (added) places_.push_back(place);
      place_of_.push_back(entry->second);
    }
    live_.resize(places_.size());
    for (; born_ < replay.blocks.size() && replay.blocks[born_].from_before(); ++born_) Add(born_);
    event_ = replay.events.first;
  }

  // Walks on to what is alive before `event`, which must not lie behind.
  void WalkTo(uint32_t event) {
    for (; event_ < event; ++event_) {
      const uint32_t dead = deaths_.At(event_);
      if (dead != Deaths::kNone) live_[place_of_[dead]] -= Bytes(replay_.blocks[dead].bytes);
      if (born_ < replay_.blocks.size() && replay_.blocks[born_].alloc_event == event_) {
        Add(born_++);
      }
    }
  }

  const std::vector<Place>& places() const { return places_; }
  Bytes live(size_t place) const { return live_[place]; }

 private:
  void Add(size_t block) { live_[place_of_[block]] += Bytes(replay_.blocks[block].bytes); }

  const Replay& replay_;
  std::vector<Place> places_;
  std::vector<uint32_t> place_of_;  // by block
  Deaths deaths_;
  std::vector<Bytes> live_;  // by place
  size_t born_ = 0;          // the next block to come alive
  uint32_t event_ = 0;
};

}  // namespace

std::vector<Holder> HoldersAt(const Replay& replay, const Classification& classes, uint32_t event) {
  std::map<std::tuple<StackId, Component, Kind>, Holder> holders;
  for (size_t i = 0; i < replay.blocks.size(); ++i) {
    const BlockLife& block = replay.blocks[i];
    if (!IsAliveAfter(block, event)) continue;
    const BlockClass& c = classes.blocks[i];
    Holder& holder = holders[{block.stack, c.component, c.kind}];
    holder.stack = block.stack;
    holder.component = c.component;
    holder.kind = c.kind;
    holder.bytes += Bytes(block.bytes);
    ++holder.blocks;
  }
  std::vector<Holder> sorted;
  for (const auto& [place, holder] : holders) sorted.push_back(holder);
  std::sort(sorted.begin(), sorted.end(), [](const Holder& a, const Holder& b) {
    return std::tuple(b.bytes, a.stack, a.component, a.kind) <
           std::tuple(a.bytes, b.stack, b.component, b.kind);
  });
  return sorted;
}

Bytes Growth::per_step() const {
  if (after_step.size() < 2) return Bytes(0);
  const auto steps = static_cast<int64_t>(after_step.size() - 1);
  return Bytes((after_step.back() - after_step.front()).count() / steps);
}

std::vector<Growth> FindGrowth(const Replay& replay, const Classification& classes) {
  std::vector<uint32_t> ends;
  for (const PhaseCut& cut : classes.phases.cuts) {
    if (cut.name == "step_end" && cut.step >= 2 && cut.event != replay.events.first) {
      ends.push_back(cut.event);
    }
  }
  std::vector<Growth> found;
  if (ends.size() < 2) return found;
  LiveByPlace live(replay, classes);
  std::vector<Growth> growing;
  for (const Place& place : live.places()) growing.push_back({place.first, place.second, {}});
  std::vector<bool> grows(growing.size(), true);
  for (const uint32_t end : ends) {
    live.WalkTo(end);
    for (size_t i = 0; i < growing.size(); ++i) {
      if (!grows[i]) continue;
      std::vector<Bytes>& after = growing[i].after_step;
      grows[i] = after.empty() || live.live(i) > after.back();
      after.push_back(live.live(i));
    }
  }
  for (size_t i = 0; i < growing.size(); ++i) {
    if (grows[i]) found.push_back(std::move(growing[i]));
  }
  std::sort(found.begin(), found.end(), [](const Growth& a, const Growth& b) {
    return std::tuple(b.per_step(), a.stack, a.component) <
           std::tuple(a.per_step(), b.stack, b.component);
  });
  return found;
}

std::string DescribeStack(const Snapshot& snapshot, StackId stack, int frames) {
  std::string python_text;
  std::string cpp_text;
  int python_frames = 0;
  int cpp_frames = 0;
  for (const FrameId id : snapshot.stacks[stack]) {
    const Frame& frame = snapshot.frames[id];
    const FrameFacts facts =
        FactsOf(snapshot.strings.Get(frame.name), snapshot.strings.Get(frame.filename));
    const bool python = Has(facts, FrameFact::kPython);
    int& count = python ? python_frames : cpp_frames;
    if (!IsWorthReading(facts) || count >= frames || frame.name == StringId()) continue;
    std::string& text = python ? python_text : cpp_text;
    text += (count++ == 0 ? "" : " < ") + FrameText(snapshot, frame, python);
  }
  if (!python_text.empty()) return python_text;
  return cpp_text.empty() ? "no stack" : cpp_text;
}

std::vector<AllocatorStep> AllocatorSteps(const Replay& replay, uint32_t end) {
  struct Timed {
    uint32_t event;
    AllocatorStep step;
  };
  std::vector<Timed> timed;
  for (size_t i = 0; i < replay.blocks.size(); ++i) {
    const BlockLife& block = replay.blocks[i];
    const auto number = static_cast<uint32_t>(i);
    if (!block.from_before() && block.alloc_event >= end) break;  // in order of allocation
    // Events are counted from 1 here: 0 is the time before the trace.
    const uint32_t born = block.from_before() ? 0 : block.alloc_event - replay.events.first + 1;
    timed.push_back({born, {number, true}});
    if (block.free_event == kNoEvent || block.free_event >= end) continue;
    timed.push_back({block.free_event - replay.events.first + 1, {number, false}});
  }
  // A free that shares its event with an allocation makes room for it.
  std::sort(timed.begin(), timed.end(), [](const Timed& a, const Timed& b) {
    return std::tuple(a.event, a.step.is_alloc, a.step.block) <
           std::tuple(b.event, b.step.is_alloc, b.step.block);
  });
  std::vector<AllocatorStep> steps;
  steps.reserve(timed.size());
  for (const Timed& t : timed) steps.push_back(t.step);
  return steps;
}

}  // namespace headroom::observe
