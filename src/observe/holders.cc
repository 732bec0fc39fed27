// SPDX-License-Identifier: Apache-2.0
#include "observe/holders.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

namespace headroom::observe {
namespace {

using Place = std::pair<StackId, Component>;

bool IsWorthReading(FrameFacts facts) {
  return !Has(facts, FrameFact::kPlumbing) && !Has(facts, FrameFact::kAllocator);
}

std::string FrameText(const Snapshot& snapshot, const Frame& frame, bool python) {
  const std::string_view name = snapshot.strings.Get(frame.name);
  if (!python) return std::string(name.substr(0, name.find('(')));
  return fmt::format("{}:{} {}", BaseName(snapshot.strings.Get(frame.filename)), frame.line, name);
}

std::map<Place, Bytes> LiveByPlace(const Replay& replay, const Classification& classes,
                                   uint32_t event) {
  std::map<Place, Bytes> live;
  for (size_t i = 0; i < replay.blocks.size(); ++i) {
    if (!IsAliveAfter(replay.blocks[i], event)) continue;
    live[{replay.blocks[i].stack, classes.blocks[i].component}] += Bytes(replay.blocks[i].bytes);
  }
  return live;
}

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
  std::vector<std::map<Place, Bytes>> ends;
  for (const PhaseCut& cut : classes.phases.cuts) {
    if (cut.name != "step_end" || cut.step < 2 || cut.event == replay.events.first) continue;
    ends.push_back(LiveByPlace(replay, classes, cut.event - 1));
  }
  std::vector<Growth> found;
  if (ends.size() < 2) return found;
  for (const auto& [place, bytes] : ends.back()) {
    Growth growth{place.first, place.second, {}};
    bool grows = true;
    for (const auto& end : ends) {
      const auto at = end.find(place);
      const Bytes now = at == end.end() ? Bytes(0) : at->second;
      grows &= growth.after_step.empty() || now > growth.after_step.back();
      growth.after_step.push_back(now);
    }
    if (grows) found.push_back(std::move(growth));
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
    if (!IsWorthReading(facts) || count >= frames) continue;
    std::string& text = python ? python_text : cpp_text;
    text += (count++ == 0 ? "" : " < ") + FrameText(snapshot, frame, python);
  }
  if (!python_text.empty()) return python_text;
  return cpp_text.empty() ? "no stack" : cpp_text;
}

std::vector<AllocatorStep> AllocatorSteps(const Replay& replay) {
  struct Timed {
    uint32_t event;
    AllocatorStep step;
  };
  std::vector<Timed> timed;
  timed.reserve(2 * replay.blocks.size());
  for (size_t i = 0; i < replay.blocks.size(); ++i) {
    const BlockLife& block = replay.blocks[i];
    const auto number = static_cast<uint32_t>(i);
    // Events are counted from 1 here: 0 is the time before the trace.
    const uint32_t born = block.from_before() ? 0 : block.alloc_event - replay.events.first + 1;
    timed.push_back({born, {number, true}});
    if (block.free_event == kNoEvent) continue;
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
