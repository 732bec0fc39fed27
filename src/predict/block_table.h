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
#include <bit>
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
// Most pools hold tens of blocks, some thousands, and come and go by the hundred thousand. Sizes
// that agree in their leading bits therefore share a bin, which is found without a search:
//
//   size / 512    1 … 31 | 32, 33 | 34, 35 | … | 62, 63 | 64 … 67 | 68 … 71 | …
//   bin           1 … 31 | 32     | 33     | … | 47     | 48      | 49      | …
//
// A bin is cut into runs that are short enough to be shifted at each insertion.
class FreeBlocks {
 public:
  // Where a free block stands, until the next change; `block` is -1 for none.
  struct Place {
    size_t bin = 0;
    size_t run = 0;
    size_t entry = 0;
    int32_t block = -1;
  };

  void Insert(const Block& block, int32_t index) {
    const size_t at = BinOf(block.size);
    if (at >= bins_.size()) bins_.resize(at + 1);
    Insert(bins_[at], {block.size, block.address, index});
    used_[at / kWordBits] |= uint64_t{1} << (at % kWordBits);
  }

  void Erase(const Place& place) {
    Bin& bin = bins_[place.bin];
    Run& run = bin[place.run];
    std::copy(run.begin() + place.entry + 1, run.end(), run.begin() + place.entry);
    if (--run.count > 0) return;
    bin.erase(bin.begin() + static_cast<std::ptrdiff_t>(place.run));
    if (bin.empty()) used_[place.bin / kWordBits] &= ~(uint64_t{1} << (place.bin % kWordBits));
  }

  // REQUIRES: `block` was inserted as it is.
  void Erase(const Block& block) {
    const Place place = AtLeast(BinOf(block.size), {block.size, block.address, 0});
    HEADROOM_CHECK(place.block >= 0 && At(place).Is(block), "no such free block");
    Erase(place);
  }

  // The smallest block of at least `size`.
  Place BestFit(int64_t size) const {
    const size_t bin = BinOf(size);
    const Place place = AtLeast(bin, {size, 0, 0});
    return place.block >= 0 ? place : FirstFrom(bin + 1);
  }

  // As BestFit, then on to larger blocks as long as each next one has less `extent(block)`.
  template <typename Extent>
  Place BestFit(int64_t size, const Extent& extent) const {
    Place best = BestFit(size);
    while (best.block >= 0) {
      const Place next = Behind(best);
      if (next.block < 0 || extent(next.block) >= extent(best.block)) break;
      best = next;
    }
    return best;
  }

  // Indices of all blocks, smallest first.
  std::vector<int32_t> Blocks() const {
    std::vector<int32_t> blocks;
    for (Place place = FirstFrom(0); place.block >= 0; place = Behind(place)) {
      blocks.push_back(place.block);
    }
    return blocks;
  }

 private:
  struct Entry {
    int64_t size;
    uint64_t address;
    int32_t block;
    bool operator<(const Entry& other) const {
      // Not &&, ||: which of two blocks is the lesser no branch predictor learns.
      return (size < other.size) | ((size == other.size) & (address < other.address));
    }
    bool Is(const Block& of) const { return size == of.size && address == of.address; }
  };
  static constexpr size_t kMostInRun = 32;
  struct Run {
    size_t count = 0;
    std::array<Entry, kMostInRun> entries;

    Entry* begin() { return entries.data(); }
    Entry* end() { return entries.data() + count; }
    const Entry* begin() const { return entries.data(); }
    const Entry* end() const { return entries.data() + count; }
    const Entry& Last() const { return entries[count - 1]; }
    // How many entries are less than `entry`.
    size_t CountLess(const Entry& entry) const {
      size_t first = 0;
      for (size_t left = count; left > 0;) {
        const size_t half = left / 2;
        const bool less = entries[first + half] < entry;
        first += less ? half + 1 : 0;
        left = less ? left - half - 1 : half;
      }
      return first;
    }
  };
  using Bin = std::vector<Run>;  // no run is empty

  // Bins of a power of two, and the bits of a size below its unit.
  static constexpr int kBinBits = 4;
  static constexpr int kUnitBits = 9;
  static constexpr size_t kWordBits = 64;
  static constexpr size_t kMostBins = (63 - kUnitBits) << kBinBits;

  static size_t BinOf(int64_t size) {
    const uint64_t units = static_cast<uint64_t>(size) >> kUnitBits;
    const int shift = std::max(static_cast<int>(std::bit_width(units)) - 1 - kBinBits, 0);
    return (static_cast<size_t>(shift) << kBinBits) + static_cast<size_t>(units >> shift);
  }

  const Entry& At(const Place& place) const {
    return bins_[place.bin][place.run].entries[place.entry];
  }

  // The first run of `bin` that reaches up to `entry`; bin.size() when none does.
  static size_t RunOf(const Bin& bin, const Entry& entry) {
    if (bin.size() == 1) return bin.front().Last() < entry ? 1 : 0;
    const auto run = std::partition_point(bin.begin(), bin.end(),
                                          [&](const Run& one) { return one.Last() < entry; });
    return static_cast<size_t>(run - bin.begin());
  }

  Place AtLeast(size_t bin, const Entry& least) const {
    if (bin >= bins_.size()) return {};
    const size_t at = RunOf(bins_[bin], least);
    if (at == bins_[bin].size()) return {};
    const Run& run = bins_[bin][at];
    const size_t entry = run.CountLess(least);
    return {bin, at, entry, run.entries[entry].block};
  }

  // The smallest block of bin `bin` or a later one.
  Place FirstFrom(size_t bin) const {
    for (size_t word = bin / kWordBits; word < used_.size(); ++word) {
      uint64_t bits = used_[word];
      if (word == bin / kWordBits) bits &= ~uint64_t{0} << (bin % kWordBits);
      if (bits == 0) continue;
      const size_t found = word * kWordBits + static_cast<size_t>(std::countr_zero(bits));
      return {found, 0, 0, bins_[found].front().entries.front().block};
    }
    return {};
  }

  Place Behind(Place place) const {
    if (++place.entry == bins_[place.bin][place.run].count) {
      place.entry = 0;
      if (++place.run == bins_[place.bin].size()) return FirstFrom(place.bin + 1);
    }
    place.block = At(place).block;
    return place;
  }

  static void Insert(Bin& bin, const Entry& entry) {
    if (bin.empty()) {
      bin.push_back({.count = 1, .entries = {entry}});
      return;
    }
    size_t at = RunOf(bin, entry);
    if (at == bin.size()) --at;
    if (bin[at].count == kMostInRun) {
      Split(bin, at);
      if (bin[at].Last() < entry) ++at;
    }
    Run& run = bin[at];
    Entry* const place = run.begin() + run.CountLess(entry);
    std::copy_backward(place, run.end(), run.end() + 1);
    *place = entry;
    ++run.count;
  }

  static void Split(Bin& bin, size_t at) {
    constexpr size_t kKept = kMostInRun / 2;
    Run upper;
    upper.count = kMostInRun - kKept;
    std::copy_n(bin[at].begin() + kKept, upper.count, upper.begin());
    bin[at].count = kKept;
    bin.insert(bin.begin() + static_cast<std::ptrdiff_t>(at) + 1, upper);
  }

  std::vector<Bin> bins_;  // up to the largest that was needed
  std::array<uint64_t, (kMostBins + kWordBits - 1) / kWordBits> used_ = {};  // bins with a block
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
