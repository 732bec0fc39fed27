// SPDX-License-Identifier: Apache-2.0
//
// SegmentMap: PyTorch's segments and the blocks they are cut into, driven by recorded addresses.
//
// A trace says what was asked for and where it was put, not how much was handed out: a block whose
// rest is too small to be of use is given whole, and memory_allocated() counts all of it. Replaying
// the cuts, at the recorded addresses, gives that number exactly.
//
//   segment of 20 MiB   take 19.5 MiB at 0      -> 20 MiB handed out (the rest is no more than 1
//   MiB)
//                       take 18 MiB at 0        -> 18 MiB, and a free block of 2 MiB at 18 MiB
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "observe/snapshot.h"

namespace headroom::observe {

// Addresses to small numbers. Addresses are multiples of 512 and come and go all the time.
class AddressMap {
 public:
  AddressMap() : slots_(1024) {}
  // Null when unknown; valid until the next change.
  uint32_t* Find(uint64_t address);
  void Set(uint64_t address, uint32_t value);
  void Erase(uint64_t address);
  size_t size() const { return size_; }
  size_t slot_count() const { return slots_.size(); }  // what ForEach walks over
  template <typename Visit>                            // visit(address, value)
  void ForEach(const Visit& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.used) visit(slot.address, slot.value);
    }
  }

 private:
  struct Slot {
    uint64_t address = 0;
    uint32_t value = 0;
    bool used = false;
  };
  size_t Home(uint64_t address) const;
  std::vector<Slot> slots_;
  size_t size_ = 0;
};

// How the allocator rounds a request: to 512 bytes, or to a fraction of a power of two.
class Rounding {
 public:
  explicit Rounding(const std::optional<AllocatorSettings>& settings);
  int64_t operator()(int64_t size) const;

 private:
  int64_t divisions_[16] = {};  // by power of two from 1 MiB to 32 GiB
  bool any_ = false;
};

class SegmentMap {
 public:
  explicit SegmentMap(const std::optional<AllocatorSettings>& settings);

  // A segment appears: one free block. A block that is there already is replaced.
  void AddSegment(uint64_t address, int64_t size);
  void RemoveSegment(uint64_t address);
  // A request of `size` bytes was put at `address`: how much it was given. Falls back to the
  // rounded request where the map knows no free block there (expandable segments, missing history).
  int64_t Take(uint64_t address, int64_t size);
  // A block that lived before the trace, `size` of it known for certain or at least.
  int64_t TakeKnown(uint64_t address, int64_t size, bool exact);
  // A request was put inside what the map holds for one free block: the bytes between its start and
  // `address` then belong to the block in front, which was given more than it asked for. Moves them
  // there and returns them with that block's address; nothing when the map has no such place.
  struct Rest {
    uint64_t owner = 0;
    int64_t bytes = 0;
  };
  std::optional<Rest> FindRest(uint64_t address);
  void Give(uint64_t address);
  bool HasFree(uint64_t address);

  int64_t Round(int64_t size) const { return round_(size); }

 private:
  struct Node {
    uint64_t address = 0;
    int64_t size = 0;
    uint32_t previous = 0;  // neighbours in the segment; 0 is none
    uint32_t next = 0;
    bool free = true;
  };
  uint32_t NewNode(const Node& node);
  void Drop(uint32_t node);
  void Cut(uint32_t node, int64_t size);
  void MergeNext(uint32_t node);
  // The node that holds `address` inside it, or 0. A walk over all of them, which is allowed
  // kMostWalked steps in all: it is needed for what stood before the trace only.
  uint32_t Holding(uint64_t address);

  Rounding round_;
  int64_t max_split_size_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> spare_;
  AddressMap at_;
  uint64_t walked_ = 0;
};

}  // namespace headroom::observe
