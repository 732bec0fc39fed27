// SPDX-License-Identifier: Apache-2.0
//
// The pieces both caching allocators are made of: blocks that know their neighbours, and pools of
// free blocks ordered by size.
//
//   segment   | live 8 | free 4 | live 8 |      previous/next link the three;
//   Free(8)   | free 12         | live 8 |      free neighbours merge at once
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"

namespace headroom::predict {

// A piece of a segment. Live blocks belong to a tensor; free ones stand in a pool; unmapped ones
// (expandable segments only) are address range without memory behind it.
struct Block {
  uint64_t address = 0;
  int64_t size = 0;
  int32_t previous = -1;  // neighbour below in the same segment, or -1
  int32_t next = -1;      // neighbour above, or -1
  bool live = false;
  bool small = false;  // of the small pool
  bool mapped = true;
  uint8_t stream = 0;
  int64_t free_since = 0;  // count of allocations when it became free; for garbage collection

  bool IsWholeSegment() const { return previous < 0 && next < 0; }
};

// Free blocks of one pool, smallest first, the lowest address first among equals.
//
// They stand in one order, cut into runs that are short enough to be shifted at each insertion:
// most pools hold tens of blocks, some thousands, and come and go by the hundred thousand.
class FreeBlocks {
 public:
  // Where a free block stands, until the next change; `block` is -1 for none.
  struct Place {
    size_t run = 0;
    size_t entry = 0;
    int32_t block = -1;
  };

  void Insert(const Block& block, int32_t index) {
    const Entry entry{block.size, block.address, index};
    if (runs_.empty()) runs_.emplace_back();
    size_t at = RunOf(entry);
    if (at == runs_.size()) --at;
    if (runs_[at].count == kMostInRun) {
      Split(at);
      if (runs_[at].Last() < entry) ++at;
    }
    Run& run = runs_[at];
    Entry* const place = std::lower_bound(run.begin(), run.end(), entry);
    std::copy_backward(place, run.end(), run.end() + 1);
    *place = entry;
    ++run.count;
  }

  void Erase(const Place& place) {
    Run& run = runs_[place.run];
    std::copy(run.begin() + place.entry + 1, run.end(), run.begin() + place.entry);
    if (--run.count == 0) runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(place.run));
  }

  // REQUIRES: `block` was inserted as it is.
  void Erase(const Block& block) {
    const Place place = AtLeast({block.size, block.address, 0});
    HEADROOM_CHECK(place.block >= 0 && runs_[place.run].entries[place.entry].Is(block),
                   "no such free block");
    Erase(place);
  }

  // The smallest block of at least `size`.
  Place BestFit(int64_t size) const { return AtLeast({size, 0, 0}); }

  // As BestFit, then on to larger blocks as long as each next one has less `extent(block)`.
  template <typename Extent>
  Place BestFit(int64_t size, const Extent& extent) const {
    Place best = BestFit(size);
    while (best.block >= 0) {
      Place next{best.run, best.entry + 1};
      if (next.entry == runs_[next.run].count) next = {best.run + 1, 0};
      if (next.run == runs_.size()) break;
      next.block = runs_[next.run].entries[next.entry].block;
      if (extent(next.block) >= extent(best.block)) break;
      best = next;
    }
    return best;
  }

  // Indices of all blocks, smallest first.
  std::vector<int32_t> Blocks() const {
    std::vector<int32_t> blocks;
    for (const Run& run : runs_) {
      for (const Entry& entry : run) blocks.push_back(entry.block);
    }
    return blocks;
  }

 private:
  struct Entry {
    int64_t size;
    uint64_t address;
    int32_t block;
    bool operator<(const Entry& other) const {
      return size != other.size ? size < other.size : address < other.address;
    }
    bool Is(const Block& of) const { return size == of.size && address == of.address; }
  };
  static constexpr size_t kMostInRun = 64;
  struct Run {
    size_t count = 0;
    std::array<Entry, kMostInRun> entries;

    Entry* begin() { return entries.data(); }
    Entry* end() { return entries.data() + count; }
    const Entry* begin() const { return entries.data(); }
    const Entry* end() const { return entries.data() + count; }
    const Entry& Last() const { return entries[count - 1]; }
  };

  // The first run that reaches up to `entry`; runs_.size() when none does.
  size_t RunOf(const Entry& entry) const {
    const auto run = std::partition_point(runs_.begin(), runs_.end(),
                                          [&](const Run& one) { return one.Last() < entry; });
    return static_cast<size_t>(run - runs_.begin());
  }

  Place AtLeast(const Entry& least) const {
    const size_t at = RunOf(least);
    if (at == runs_.size()) return {};
    const Entry* entry = std::lower_bound(runs_[at].begin(), runs_[at].end(), least);
    return {at, static_cast<size_t>(entry - runs_[at].begin()), entry->block};
  }

  void Split(size_t at) {
    constexpr size_t kKept = kMostInRun / 2;
    Run upper;
    upper.count = kMostInRun - kKept;
    std::copy_n(runs_[at].begin() + kKept, upper.count, upper.begin());
    runs_[at].count = kKept;
    runs_.insert(runs_.begin() + static_cast<std::ptrdiff_t>(at) + 1, upper);
  }

  std::vector<Run> runs_;  // none is empty
};

// Blocks by index. Indices of dropped blocks are used again.
class BlockTable {
 public:
  Block& operator[](int32_t index) { return blocks_[static_cast<size_t>(index)]; }

  int32_t New() {
    if (!unused_.empty()) {
      const int32_t index = unused_.back();
      unused_.pop_back();
      (*this)[index] = Block{};
      return index;
    }
    blocks_.emplace_back();
    return static_cast<int32_t>(blocks_.size()) - 1;
  }
  void Drop(int32_t index) { unused_.push_back(index); }

  // Cuts `index` to `size` and returns the block of what is left, which is in no pool yet.
  int32_t Split(int32_t index, int64_t size) {
    const int32_t rest = New();
    Block& block = (*this)[index];
    Block& tail = (*this)[rest];
    tail = block;
    tail.address = block.address + static_cast<uint64_t>(size);
    tail.size = block.size - size;
    tail.live = false;
    tail.previous = index;
    if (tail.next >= 0) (*this)[tail.next].previous = rest;
    block.next = rest;
    block.size = size;
    return rest;
  }

  // Merges the neighbour `other` into `index`. REQUIRES: `other` is in no pool.
  void Absorb(int32_t index, int32_t other) {
    Block& block = (*this)[index];
    const Block& gone = (*this)[other];
    if (other == block.previous) {
      block.address = gone.address;
      block.previous = gone.previous;
      if (block.previous >= 0) (*this)[block.previous].next = index;
    } else {
      HEADROOM_CHECK(other == block.next, "only neighbours merge");
      block.next = gone.next;
      if (block.next >= 0) (*this)[block.next].previous = index;
    }
    block.size += gone.size;
    Drop(other);
  }

 private:
  std::vector<Block> blocks_;
  std::vector<int32_t> unused_;
};

}  // namespace headroom::predict
