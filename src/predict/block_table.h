// SPDX-License-Identifier: Apache-2.0
//
// The pieces both caching allocators are made of: blocks that know their neighbours, and pools of
// free blocks ordered by size.
//
//   segment   | live 8 | free 4 | live 8 |      previous/next link the three;
//   Free(8)   | free 12         | live 8 |      free neighbours merge at once
#pragma once

#include <cstdint>
#include <iterator>
#include <memory_resource>
#include <set>
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
class FreeBlocks {
 public:
  struct Entry {
    int64_t size;
    uint64_t address;
    int32_t block;
    bool operator<(const Entry& other) const {
      return size != other.size ? size < other.size : address < other.address;
    }
  };

  void Insert(const Block& block, int32_t index) {
    entries_.insert({block.size, block.address, index});
  }
  void Erase(const Block& block) { entries_.erase({block.size, block.address, 0}); }
  // The smallest block of at least `size`, or -1.
  int32_t BestFit(int64_t size) const {
    const auto entry = entries_.lower_bound({size, 0, 0});
    return entry == entries_.end() ? -1 : entry->block;
  }
  // As BestFit, then on to larger blocks as long as each next one has less `extent(block)`.
  template <typename Extent>
  int32_t BestFit(int64_t size, const Extent& extent) const {
    auto entry = entries_.lower_bound({size, 0, 0});
    if (entry == entries_.end()) return -1;
    for (auto next = std::next(entry); next != entries_.end(); ++next) {
      if (extent(next->block) >= extent(entry->block)) break;
      entry = next;
    }
    return entry->block;
  }
  // Indices of all blocks, smallest first.
  std::vector<int32_t> Blocks() const {
    std::vector<int32_t> blocks;
    blocks.reserve(entries_.size());
    for (const Entry& entry : entries_) blocks.push_back(entry.block);
    return blocks;
  }

 private:
  // Nodes come and go by the ten thousand; the pool keeps them.
  std::pmr::unsynchronized_pool_resource nodes_;
  std::pmr::set<Entry> entries_{&nodes_};
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
