// SPDX-License-Identifier: Apache-2.0
#include "report/timeline.h"

#include <algorithm>

namespace headroom {
namespace {

Bytes& At(ComponentBytes& bytes, Component component) {
  return bytes[static_cast<size_t>(component)];
}

// The ledger's state while its events are applied one by one.
class Fold {
 public:
  explicit Fold(const Ledger& ledger) {
    At(now_.components, Component::kContext) = ledger.context();
  }

  void Apply(size_t position, const MemoryEvent& event) {
    now_.event = position;
    const Bytes size(event.bytes);
    switch (event.type) {
      case MemoryEvent::Type::kAlloc:
        At(now_.components, event.component) += size;
        allocated_ += size;
        At(now_.components, Component::kCache) -= size;
        break;
      case MemoryEvent::Type::kFree:
        At(now_.components, event.component) -= size;
        allocated_ -= size;
        At(now_.components, Component::kCache) += size;
        break;
      case MemoryEvent::Type::kReserve:
        At(now_.components, Component::kCache) += size;
        break;
      case MemoryEvent::Type::kMark:
        break;
    }
  }

  const TimelinePoint& now() const { return now_; }
  Bytes allocated() const { return allocated_; }

 private:
  TimelinePoint now_;
  Bytes allocated_;
};

// The lowest and the highest moment of one stretch, in the order in which they came.
class Extremes {
 public:
  void Add(const Fold& fold) {
    if (empty_ || fold.allocated() < low_) {
      low_ = fold.allocated();
      lowest_ = fold.now();
    }
    if (empty_ || fold.allocated() > high_) {
      high_ = fold.allocated();
      highest_ = fold.now();
    }
    empty_ = false;
  }

  void MoveTo(std::vector<TimelinePoint>& points) {
    if (empty_) return;
    const bool low_first = lowest_.event < highest_.event;
    points.push_back(low_first ? lowest_ : highest_);
    if (lowest_.event != highest_.event) points.push_back(low_first ? highest_ : lowest_);
    empty_ = true;
  }

 private:
  TimelinePoint lowest_;
  TimelinePoint highest_;
  Bytes low_;
  Bytes high_;
  bool empty_ = true;
};

}  // namespace

std::vector<TimelinePoint> BuildTimeline(const Ledger& ledger, size_t most_points) {
  const size_t count = ledger.events().size();
  const size_t stretches = std::max<size_t>(1, most_points / 2);
  const size_t length =
      count <= most_points ? 1 : std::max<size_t>(1, (count + stretches - 1) / stretches);
  // A ledger with more marks than a screen has room for is not cut at them.
  const bool cut_at_marks = ledger.marks().size() <= stretches / 4;

  std::vector<TimelinePoint> points;
  Fold fold(ledger);
  Extremes extremes;
  size_t in_stretch = 0;
  for (size_t i = 0; i < count; ++i) {
    const MemoryEvent& event = ledger.events()[i];
    fold.Apply(i, event);
    extremes.Add(fold);
    ++in_stretch;
    const bool at_mark = cut_at_marks && event.type == MemoryEvent::Type::kMark;
    if (in_stretch < length && !at_mark) continue;
    extremes.MoveTo(points);
    in_stretch = 0;
    // What is held when a phase ends is what the next one begins with.
    if (at_mark && points.back().event != i) points.push_back(fold.now());
  }
  extremes.MoveTo(points);
  if (count > 0 && points.back().event != count - 1) points.push_back(fold.now());
  return points;
}

std::vector<BlockLife> LargestBlocks(const Ledger& ledger, size_t most) {
  const EventLog& events = ledger.events();
  std::vector<BlockLife> blocks;
  std::vector<size_t> of_block;  // BlockId -> position in `blocks`
  for (size_t i = 0; i < events.size(); ++i) {
    const auto id = static_cast<size_t>(events[i].block);
    if (events[i].type == MemoryEvent::Type::kAlloc) {
      if (of_block.size() <= id) of_block.resize(id + 1);
      of_block[id] = blocks.size();
      blocks.push_back({i, events.size()});
    } else if (events[i].type == MemoryEvent::Type::kFree) {
      blocks[of_block[id]].to = i;
    }
  }
  if (blocks.size() <= most) return blocks;
  const auto larger = [&](const BlockLife& a, const BlockLife& b) {
    if (events[a.from].bytes != events[b.from].bytes) {
      return events[a.from].bytes > events[b.from].bytes;
    }
    return a.from < b.from;
  };
  const auto end = blocks.begin() + static_cast<std::ptrdiff_t>(most);
  std::ranges::nth_element(blocks, end, larger);
  blocks.erase(end, blocks.end());
  std::ranges::sort(blocks, {}, &BlockLife::from);
  return blocks;
}

}  // namespace headroom
