// SPDX-License-Identifier: Apache-2.0
#include "observe/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>

#include "observe/segment_map.h"

namespace headroom::observe {
namespace {

constexpr int64_t kMiB = 1 << 20;

Snapshot Read(const std::string& name) {
  Result<Snapshot> snapshot = ReadSnapshot(std::string(HEADROOM_TEST_DATA) + "/snapshots/" + name);
  EXPECT_TRUE(snapshot.ok());
  return std::move(snapshot).value();
}

void AddEvent(Snapshot* snapshot, Action action, uint64_t address, int64_t size) {
  EventTable& events = snapshot->events;
  events.Add({.addr = address, .size = size, .action = action}, events.count() + 1);
}

// A caching allocator that keeps its own books: what the replay must find from the trace alone.
class ModelAllocator {
 public:
  explicit ModelAllocator(uint32_t seed) : random_(seed) {}

  void Step() {
    const bool alloc = live_.empty() || random_() % 100 < 55;
    if (alloc) {
      Alloc();
    } else {
      auto victim = std::next(live_.begin(), static_cast<ptrdiff_t>(random_() % live_.size()));
      Free(victim->first);
    }
    if (random_() % 40 == 0) ReleaseSegments();
    totals_.emplace_back(snapshot_.events.count(), allocated_, reserved_);
  }

  // The recording as if it had started at event `first`, with the segments of the end.
  Snapshot Recording(size_t first) const {
    Snapshot out;
    for (size_t i = first; i < snapshot_.events.count(); ++i) {
      AddEvent(&out, snapshot_.events[i].action, snapshot_.events[i].addr,
               snapshot_.events[i].size);
    }
    out.devices.push_back({0, static_cast<uint32_t>(out.events.count())});
    out.streams.push_back(0);
    out.contexts.emplace_back();
    for (const auto& [address, segment] : segments_) {
      Segment row;
      row.address = address;
      row.total = segment.size;
      row.blocks.first = static_cast<uint32_t>(out.blocks.size());
      for (const auto& [start, piece] : segment.pieces) {
        const bool used = live_.contains(start);
        out.blocks.push_back({start, piece, used ? live_.at(start) : piece,
                              used ? Block::State::kActive : Block::State::kInactive, StackId()});
        ++row.blocks.count;
      }
      out.segments.push_back(row);
    }
    return out;
  }

  struct Total {
    Total(size_t e, int64_t a, int64_t r) : event(e), allocated(a), reserved(r) {}
    size_t event;
    int64_t allocated;
    int64_t reserved;
  };
  const std::vector<Total>& totals() const { return totals_; }

 private:
  struct SegmentBooks {
    int64_t size = 0;
    bool small = false;
    std::map<uint64_t, int64_t> pieces;
  };

  int64_t RandomSize() {
    const int kind = static_cast<int>(random_() % 4);
    if (kind == 0) return 1 + static_cast<int64_t>(random_() % 4000);
    if (kind == 1) return 1 + static_cast<int64_t>(random_() % kMiB);
    if (kind == 2) return kMiB + static_cast<int64_t>(random_() % (9 * kMiB));
    return 10 * kMiB + static_cast<int64_t>(random_() % (30 * kMiB));
  }

  void Alloc() {
    const int64_t size = RandomSize();
    const int64_t rounded = (size + 511) / 512 * 512;
    const bool small = rounded <= kMiB;
    for (auto& [address, segment] : segments_) {
      if (segment.small != small) continue;
      for (const auto& [start, piece] : segment.pieces) {
        if (piece < rounded || live_.contains(start)) continue;
        Place(&segment, start, size, rounded);
        return;
      }
    }
    const int64_t total = small ? 2 * kMiB
                          : rounded < 10 * kMiB
                              ? 20 * kMiB
                              : (rounded + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
    next_ += static_cast<uint64_t>(total) * (1 + random_() % 2);
    const uint64_t address = next_;
    next_ += static_cast<uint64_t>(total);
    segments_[address] = {total, small, {{address, total}}};
    AddEvent(&snapshot_, Action::kSegmentAlloc, address, total);
    reserved_ += total;
    Place(&segments_[address], address, size, rounded);
  }

  void Place(SegmentBooks* segment, uint64_t start, int64_t size, int64_t rounded) {
    const int64_t rest = segment->pieces[start] - rounded;
    if (segment->small ? rest >= 512 : rest > kMiB) {
      segment->pieces[start] = rounded;
      segment->pieces[start + static_cast<uint64_t>(rounded)] = rest;
    }
    live_[start] = size;
    allocated_ += segment->pieces[start];
    AddEvent(&snapshot_, Action::kAlloc, start, size);
  }

  void Free(uint64_t start) {
    AddEvent(&snapshot_, Action::kFreeRequested, start, live_[start]);
    AddEvent(&snapshot_, Action::kFreeCompleted, start, live_[start]);
    live_.erase(start);
    auto& pieces = std::prev(segments_.upper_bound(start))->second.pieces;
    auto piece = pieces.find(start);
    allocated_ -= piece->second;
    if (auto next = std::next(piece); next != pieces.end() && !live_.contains(next->first)) {
      piece->second += next->second;
      pieces.erase(next);
    }
    if (piece != pieces.begin() && !live_.contains(std::prev(piece)->first)) {
      std::prev(piece)->second += piece->second;
      pieces.erase(piece);
    }
  }

  void ReleaseSegments() {
    for (auto segment = segments_.begin(); segment != segments_.end();) {
      const auto& [address, books] = *segment;
      if (books.pieces.size() == 1 && !live_.contains(address)) {
        AddEvent(&snapshot_, Action::kSegmentFree, address, books.size);
        reserved_ -= books.size;
        segment = segments_.erase(segment);
      } else {
        ++segment;
      }
    }
  }

  std::mt19937 random_;
  Snapshot snapshot_;
  std::map<uint64_t, SegmentBooks> segments_;
  std::map<uint64_t, int64_t> live_;  // address -> requested
  uint64_t next_ = 0x7f0000000000;
  int64_t allocated_ = 0;
  int64_t reserved_ = 0;
  std::vector<Total> totals_;
};

// A block from before the recording that was given up to 1 MiB more than it asked for, and that is
// freed before anything is put behind it, leaves no trace of the surplus.
TEST(Replay, FindsWhatAnAllocatorHandedOutWhereverTheRecordingStarts) {
  int inexact = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    ModelAllocator allocator(seed);
    for (int i = 0; i < 400; ++i) allocator.Step();
    for (const size_t start : {size_t{0}, size_t{57}, size_t{200}, size_t{399}}) {
      const auto before =
          start == 0 ? ModelAllocator::Total(0, 0, 0) : allocator.totals()[start - 1];
      const Snapshot recording = allocator.Recording(before.event);
      const Result<Replay> replay = ReplayDevice(recording, 0);
      ASSERT_TRUE(replay.ok());
      EXPECT_EQ(replay->contradictions, 0U);
      const int64_t lost = before.allocated - replay->start_allocated.count();
      EXPECT_GE(lost, 0) << seed << " from " << start;
      EXPECT_LE(lost, start == 0 ? 0 : kMiB) << seed << " from " << start;
      inexact += lost > 0 ? 1 : 0;
      EXPECT_EQ(replay->start_reserved.count(), before.reserved);
      int64_t peak = before.allocated;
      for (size_t i = start; i < 400; ++i) peak = std::max(peak, allocator.totals()[i].allocated);
      if (lost == 0) {
        EXPECT_EQ(replay->peak_allocated.count(), peak) << seed << " from " << start;
      }
      EXPECT_EQ(replay->end_allocated.count(), allocator.totals().back().allocated);
      EXPECT_EQ(replay->final_state.allocated, replay->end_allocated);
      EXPECT_EQ(replay->final_state.reserved, replay->end_reserved);
    }
  }
  EXPECT_LE(inexact, 4);  // of 80
}

TEST(Replay, GivesTheBytesThatPyTorchMeasured) {
  // max_memory_allocated() and memory_reserved() of the same runs, measured without recording.
  const struct {
    const char* file;
    int64_t peak;
    int64_t reserved;
  } cases[] = {
      {"mpt-small--b4-s512-bf16.pickle.gz", 6272848384, 6517948416},
      {"albert-base--b4-s512-bf16.pickle.gz", 1970842624, 2006974464},
  };
  for (const auto& c : cases) {
    const Snapshot snapshot = Read(c.file);
    const Result<Replay> replay = ReplayDevice(snapshot, 0);
    ASSERT_TRUE(replay.ok());
    EXPECT_EQ(replay->peak_allocated.count(), c.peak) << c.file;
    EXPECT_EQ(replay->end_reserved.count(), c.reserved) << c.file;
    EXPECT_EQ(replay->end_allocated, replay->final_state.allocated);
    EXPECT_EQ(replay->start_allocated, Bytes(0));
    EXPECT_EQ(replay->contradictions, 0U);
  }
}

TEST(Replay, KeepsTheFailedAllocation) {
  const Snapshot snapshot = Read("oom-gpt2.pickle.gz");
  const Result<Replay> replay = ReplayDevice(snapshot, BusiestDevice(snapshot));
  ASSERT_TRUE(replay.ok());
  ASSERT_EQ(replay->ooms.size(), 1U);
  EXPECT_EQ(replay->ooms[0].requested, Bytes(int64_t{4} * 1024 * 50257 * 4));
  EXPECT_EQ(replay->end_allocated, replay->final_state.allocated);
}

TEST(Replay, CountsBlocksFromBeforeTheTrace) {
  Snapshot snapshot = Read("tiny-protocol4.pickle");
  const Result<Replay> replay = ReplayDevice(snapshot, 0);
  ASSERT_TRUE(replay.ok());
  EXPECT_EQ(replay->blocks.size(), 3U);
  EXPECT_EQ(replay->peak_allocated.count(), 12 * kMiB);
  EXPECT_EQ(replay->peak_event, 2U);
  EXPECT_EQ(replay->end_allocated.count(), 10 * kMiB);

  snapshot.devices[0] = {3, 2};  // as if recording began with the free
  const Result<Replay> late = ReplayDevice(snapshot, 0);
  ASSERT_TRUE(late.ok());
  EXPECT_EQ(late->start_allocated.count(), 12 * kMiB);
  EXPECT_EQ(late->start_reserved.count(), 20 * kMiB);
  EXPECT_EQ(late->end_allocated.count(), 10 * kMiB);
  EXPECT_TRUE(late->blocks[0].from_before());
}

TEST(Replay, WorksWithoutATrace) {
  const Snapshot snapshot = Read("tiny-list.pickle");
  const Result<Replay> replay = ReplayDevice(snapshot, 0);
  ASSERT_TRUE(replay.ok());
  EXPECT_EQ(replay->blocks.size(), 2U);
  EXPECT_EQ(replay->peak_allocated.count(), 10 * kMiB);
  EXPECT_EQ(replay->end_reserved.count(), 20 * kMiB);
  EXPECT_EQ(replay->final_state.largest_free.count(), 8 * kMiB);
}

TEST(Replay, WorksWithoutSegments) {
  Snapshot snapshot = Read("tiny-protocol4.pickle");
  snapshot.segments.clear();
  const Result<Replay> replay = ReplayDevice(snapshot, 0);
  ASSERT_TRUE(replay.ok());
  EXPECT_EQ(replay->end_allocated.count(), 10 * kMiB);
  EXPECT_EQ(replay->end_reserved.count(), 20 * kMiB);
}

TEST(Replay, TakesForReservedWhatBlocksLayInWhereNoSegmentIsTold) {
  Snapshot snapshot;
  AddEvent(&snapshot, Action::kAlloc, 0x1000, 3 * kMiB);
  AddEvent(&snapshot, Action::kFreeCompleted, 0x1000, 3 * kMiB);
  AddEvent(&snapshot, Action::kAlloc, 0x1000, kMiB);
  snapshot.devices.push_back({0, 3});
  const Replay replay = ReplayDevice(snapshot, 0).value();
  EXPECT_EQ(replay.untold, MiB(3));
  EXPECT_EQ(replay.peak_reserved, MiB(3));
  EXPECT_EQ(replay.end_reserved, MiB(3));
  EXPECT_EQ(ReservedAfter(replay, 0), MiB(3));
}

TEST(Replay, CountsContradictionsInsteadOfBelievingThem) {
  Snapshot snapshot;
  AddEvent(&snapshot, Action::kAlloc, 512, 1000);
  AddEvent(&snapshot, Action::kAlloc, 512, 2000);
  snapshot.devices.push_back({0, 2});
  const Result<Replay> replay = ReplayDevice(snapshot, 0);
  ASSERT_TRUE(replay.ok());
  EXPECT_EQ(replay->contradictions, 1U);
  EXPECT_EQ(replay->end_allocated.count(), 2048);
}

TEST(Replay, RefusesSumsNoMachineHas) {
  Snapshot snapshot;
  for (uint64_t i = 0; i < (1 << 19); ++i) {
    AddEvent(&snapshot, Action::kAlloc, 512 * (i + 1), int64_t{1} << 42);
  }
  snapshot.devices.push_back({0, 1 << 19});
  EXPECT_FALSE(ReplayDevice(snapshot, 0).ok());
}

TEST(Replay, PicksTheBusiestDevice) {
  const Snapshot snapshot = Read("tiny-odd.pickle");
  EXPECT_EQ(BusiestDevice(snapshot), 1);
  EXPECT_THAT(DevicesIn(snapshot), testing::ElementsAre(1));
  const Result<Replay> replay = ReplayDevice(snapshot, 1);
  ASSERT_TRUE(replay.ok());
  EXPECT_EQ(replay->end_allocated.count(), 1024);
  EXPECT_EQ(replay->end_reserved.count(), 20 * kMiB);
  EXPECT_EQ(replay->final_state.pending_free.count(), 1024);
}

TEST(Rounding, RoundsAsTheAllocatorDoes) {
  const Rounding plain{std::nullopt};
  EXPECT_EQ(plain(1), 512);
  EXPECT_EQ(plain(512), 512);
  EXPECT_EQ(plain(513), 1024);
  AllocatorSettings settings;
  for (int i = 0; i < 16; ++i) settings.roundup_power2_divisions[int64_t{1} << i] = 4;
  const Rounding quarters{settings};
  EXPECT_EQ(quarters(1200), 1536);                // not above 512 x 4
  EXPECT_EQ(quarters(1200 * 1024), 1280 * 1024);  // 1 MiB, 1.25, 1.5, 1.75, 2
  EXPECT_EQ(quarters(1 << 21), 1 << 21);
  EXPECT_EQ(quarters((1 << 21) + 1), (1 << 21) + (1 << 19));
}

TEST(AddressMap, AgreesWithAMapUnderRandomUse) {
  AddressMap map;
  std::map<uint64_t, uint32_t> expected;
  std::mt19937 random(7);
  for (uint32_t i = 0; i < 50'000; ++i) {
    const uint64_t address = 512 * (random() % 3000);
    if (random() % 2 == 0) {
      map.Set(address, i);
      expected[address] = i;
    } else {
      map.Erase(address);
      expected.erase(address);
    }
    ASSERT_EQ(map.size(), expected.size());
  }
  for (const auto& [address, value] : expected) {
    ASSERT_NE(map.Find(address), nullptr);
    EXPECT_EQ(*map.Find(address), value);
  }
}

}  // namespace
}  // namespace headroom::observe
