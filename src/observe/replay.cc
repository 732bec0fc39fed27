// SPDX-License-Identifier: Apache-2.0
#include "observe/replay.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "observe/segment_map.h"

namespace headroom::observe {
namespace {

// More than any machine has, and far from where sums overflow.
constexpr int64_t kMostBytes = int64_t{1} << 60;

// What was there before the trace, as the trace and the segments prove it.
struct Before {
  struct Known {
    uint64_t address = 0;
    int64_t size = 0;  // from the segments; else what its free event names
    int64_t requested = 0;
    bool exact = false;  // from the segments
    StackId stack{};
  };
  std::vector<Known> blocks;                           // by address
  std::vector<std::pair<uint64_t, int64_t>> segments;  // address and size
};

uint32_t Surplus(int64_t bytes, int64_t requested) {
  return static_cast<uint32_t>(std::clamp<int64_t>(bytes - requested, 0, UINT32_MAX));
}

class Player {
 public:
  Player(const Snapshot& snapshot, int device)
      : snapshot_(snapshot), events_(snapshot.events), map_(snapshot.settings) {
    replay_.device = device;
    const auto at = static_cast<size_t>(device);
    if (at < snapshot.devices.size()) replay_.events = snapshot.devices[at];
  }

  Result<Replay> Play();

 private:
  bool IsOfSegments(Action action) {
    return action == Action::kSegmentAlloc || action == Action::kSegmentMap ||
           action == Action::kSegmentFree || action == Action::kSegmentUnmap;
  }

  int64_t ReservedChange(const Event& event) {
    switch (event.action) {
      case Action::kSegmentAlloc:
      case Action::kSegmentMap:
        return event.size;
      case Action::kSegmentFree:
      case Action::kSegmentUnmap:
        return -event.size;
      default:
        return 0;
    }
  }

  bool IsDeath(Action action) const { return action == death_ || action == Action::kFree; }
  void ChooseDeath();
  Before FindBefore();
  void PlaceBefore(const Before& before);
  void PlayEvent(uint32_t event);
  void FindRest(uint64_t address);
  void Alloc(uint32_t event);
  void Free(uint32_t event);
  void ReadFinalState();

  const Snapshot& snapshot_;
  const EventTable& events_;
  SegmentMap map_;
  AddressMap live_;  // address -> position in replay_.blocks
  Replay replay_;
  Action death_ = Action::kFreeCompleted;
  int64_t allocated_ = 0;
  int64_t reserved_ = 0;
};

// Recordings may leave kinds of events out (skip_actions, PyTorch 2.10): then the request to free
// has to do.
void Player::ChooseDeath() {
  bool requested = false;
  for (uint32_t i = replay_.events.first; i < replay_.events.end(); ++i) {
    if (events_[i].action == Action::kFreeCompleted) return;
    requested |= events_[i].action == Action::kFreeRequested;
  }
  if (requested) death_ = Action::kFreeRequested;
}

Before Player::FindBefore() {
  Before before;
  AddressMap seen;  // 1: allocated in the trace and alive
  std::unordered_set<uint64_t> segments_seen;
  for (uint32_t i = replay_.events.first; i < replay_.events.end(); ++i) {
    const uint64_t address = events_[i].addr;
    const Action action = events_[i].action;
    if (action == Action::kAlloc) {
      seen.Set(address, 1);
    } else if (IsDeath(action)) {
      if (seen.Find(address) == nullptr) {
        before.blocks.push_back({address, events_[i].size, events_[i].size, false, StackId()});
      }
      seen.Erase(address);
    } else if (action == Action::kSegmentAlloc) {
      segments_seen.insert(address);
    } else if (action == Action::kSegmentFree && !segments_seen.contains(address)) {
      before.segments.emplace_back(address, events_[i].size);
      segments_seen.insert(address);
    }
  }
  for (const Segment& segment : snapshot_.segments) {
    if (segment.device != replay_.device) continue;
    if (!segment.is_expandable && !segments_seen.contains(segment.address)) {
      before.segments.emplace_back(segment.address, segment.total);
    }
    for (uint32_t b = segment.blocks.first; b < segment.blocks.end(); ++b) {
      const Block& block = snapshot_.blocks[b];
      const bool live = block.state != Block::State::kInactive;
      if (live && seen.Find(block.address) == nullptr) {
        before.blocks.push_back({block.address, block.size, block.requested, true, block.stack});
      }
    }
  }
  std::sort(before.blocks.begin(), before.blocks.end(),
            [](const Before::Known& a, const Before::Known& b) { return a.address < b.address; });
  return before;
}

void Player::PlaceBefore(const Before& before) {
  for (const auto& [address, size] : before.segments) map_.AddSegment(address, size);
  // From the highest address down: what lies behind a block is settled before the block is cut.
  for (auto known = before.blocks.rbegin(); known != before.blocks.rend(); ++known) {
    const int64_t least = known->exact ? known->size : map_.Round(known->size);
    const int64_t bytes = map_.TakeKnown(known->address, least, known->exact);
    if (live_.Find(known->address) != nullptr) {
      ++replay_.contradictions;
      continue;
    }
    live_.Set(known->address, static_cast<uint32_t>(replay_.blocks.size()));
    replay_.blocks.push_back(
        {bytes, kNoEvent, kNoEvent, known->stack, Surplus(bytes, known->requested)});
    allocated_ += bytes;
  }
}

// A block from before the trace turns out to hold more than its free event says. It has been alive
// since the start, so every total so far grows by the same.
void Player::FindRest(uint64_t address) {
  const std::optional<SegmentMap::Rest> rest = map_.FindRest(address);
  if (!rest) return;
  const uint32_t* owner = live_.Find(rest->owner);
  if (owner == nullptr || !replay_.blocks[*owner].from_before()) return;
  replay_.blocks[*owner].bytes += rest->bytes;
  replay_.blocks[*owner].surplus += static_cast<uint32_t>(rest->bytes);
  allocated_ += rest->bytes;
  replay_.start_allocated += Bytes(rest->bytes);
  replay_.peak_allocated += Bytes(rest->bytes);
}

void Player::Alloc(uint32_t event) {
  const uint64_t address = events_[event].addr;
  if (!map_.HasFree(address)) FindRest(address);
  const int64_t bytes = map_.Take(address, events_[event].size);
  if (uint32_t* old = live_.Find(address)) {
    // Two live blocks at one address: the free in between was not recorded.
    ++replay_.contradictions;
    BlockLife& lost = replay_.blocks[*old];
    lost.free_event = event;
    allocated_ -= lost.bytes;
  }
  live_.Set(address, static_cast<uint32_t>(replay_.blocks.size()));
  replay_.blocks.push_back(
      {bytes, event, kNoEvent, events_[event].stack, Surplus(bytes, events_[event].size)});
  allocated_ += bytes;
}

void Player::Free(uint32_t event) {
  const uint64_t address = events_[event].addr;
  const uint32_t* block = live_.Find(address);
  if (block == nullptr) {
    ++replay_.contradictions;
    return;
  }
  replay_.blocks[*block].free_event = event;
  allocated_ -= replay_.blocks[*block].bytes;
  live_.Erase(address);
  map_.Give(address);
}

void Player::PlayEvent(uint32_t event) {
  const Action action = events_[event].action;
  if (action == Action::kAlloc) {
    Alloc(event);
  } else if (IsDeath(action)) {
    Free(event);
  } else if (action == Action::kSegmentAlloc) {
    map_.AddSegment(events_[event].addr, events_[event].size);
  } else if (action == Action::kSegmentFree) {
    map_.RemoveSegment(events_[event].addr);
  } else if (action == Action::kOom) {
    replay_.ooms.push_back({event, Bytes(events_[event].size),
                            Bytes(static_cast<int64_t>(events_[event].addr & INT64_MAX)),
                            events_[event].stack});
  }
  if (IsOfSegments(action)) {
    const int64_t change = ReservedChange(events_[event]);
    replay_.segments.push_back({event, action, Bytes(change)});
    reserved_ += change;
  }
}

void Player::ReadFinalState() {
  FinalState& state = replay_.final_state;
  for (const Segment& segment : snapshot_.segments) {
    if (segment.device != replay_.device) continue;
    state.reserved += Bytes(segment.total);
    bool used = false;
    for (uint32_t b = segment.blocks.first; b < segment.blocks.end(); ++b) {
      const Block& block = snapshot_.blocks[b];
      used |= block.state != Block::State::kInactive;
      switch (block.state) {
        case Block::State::kInactive:
          state.largest_free = std::max(state.largest_free, Bytes(block.size));
          break;
        case Block::State::kPendingFree:
          state.pending_free += Bytes(block.size);
          break;
        case Block::State::kActive:
          state.allocated += Bytes(block.size);
          state.requested += Bytes(block.requested);
          break;
      }
    }
    if (!used) state.releasable += Bytes(segment.total);
  }
}

Result<Replay> Player::Play() {
  ReadFinalState();
  ChooseDeath();
  size_t allocs = 0;
  int64_t reserved_net = 0;
  for (uint32_t i = replay_.events.first; i < replay_.events.end(); ++i) {
    allocs += events_[i].action == Action::kAlloc ? 1 : 0;
    reserved_net += ReservedChange(events_[i]);
    if (std::abs(reserved_net) > kMostBytes) {
      return Error::BadInput("segments of more bytes than any machine has");
    }
  }
  const Before before = FindBefore();
  replay_.blocks.reserve(before.blocks.size() + allocs);
  PlaceBefore(before);
  reserved_ = std::max<int64_t>(0, replay_.final_state.reserved.count() - reserved_net);
  replay_.start_allocated = replay_.peak_allocated = Bytes(allocated_);
  replay_.start_reserved = replay_.peak_reserved = Bytes(reserved_);
  replay_.untold = std::max(Bytes(0), Bytes(allocated_ - reserved_));
  for (uint32_t i = replay_.events.first; i < replay_.events.end(); ++i) {
    PlayEvent(i);
    if (allocated_ > kMostBytes) {
      return Error::BadInput("blocks of more bytes than any machine has");
    }
    if (Bytes(allocated_) > replay_.peak_allocated) {
      replay_.peak_allocated = Bytes(allocated_);
      replay_.peak_event = i;
    }
    replay_.peak_reserved = std::max(replay_.peak_reserved, Bytes(reserved_));
    replay_.untold = std::max(replay_.untold, Bytes(allocated_ - reserved_));
  }
  replay_.end_allocated = Bytes(allocated_);
  replay_.end_reserved = Bytes(reserved_) + replay_.untold;
  replay_.start_reserved += replay_.untold;
  replay_.peak_reserved += replay_.untold;
  return std::move(replay_);
}

}  // namespace

Bytes ReservedAfter(const Replay& replay, uint32_t event) {
  Bytes reserved = replay.start_reserved;
  for (const SegmentEvent& segment : replay.segments) {
    if (segment.event <= event) reserved += segment.change;
  }
  return reserved;
}

std::vector<int> DevicesIn(const Snapshot& snapshot) {
  std::vector<int> devices;
  for (size_t i = 0; i < snapshot.devices.size(); ++i) {
    if (snapshot.devices[i].count > 0) devices.push_back(static_cast<int>(i));
  }
  for (const Segment& segment : snapshot.segments) devices.push_back(segment.device);
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  return devices;
}

int BusiestDevice(const Snapshot& snapshot) {
  int busiest = 0;
  std::pair<uint32_t, int64_t> most{0, 0};
  for (const int device : DevicesIn(snapshot)) {
    const auto at = static_cast<size_t>(device);
    std::pair<uint32_t, int64_t> size{at < snapshot.devices.size() ? snapshot.devices[at].count : 0,
                                      0};
    for (const Segment& segment : snapshot.segments) {
      if (segment.device == device) size.second += segment.total;
    }
    if (size > most) {
      most = size;
      busiest = device;
    }
  }
  return busiest;
}

Result<Replay> ReplayDevice(const Snapshot& snapshot, int device) {
  return Player(snapshot, device).Play();
}

}  // namespace headroom::observe
