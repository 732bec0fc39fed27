// SPDX-License-Identifier: Apache-2.0
//
// AddressSpace: where a ledger's blocks could have lain.
//
// A ledger knows how much is reserved and how much of it blocks take, not where. Viewers of
// snapshots want every block inside memory that is mapped at that time; so blocks are placed as an
// allocator of expandable segments would: into the smallest free range that is large enough, and
// where none is, other free bytes are unmapped and as many mapped at the end.
//
//   reserve 20   [20 free]
//   take 8 and 6 [8][6][6 free]
//   give the 8   [8 free][6][6 free]
//   take 12      [2 free] 6 unmapped [6][12]
//
// Invariant: mapped bytes are what was reserved, as long as no more is taken than that.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace headroom {

class AddressSpace {
 public:
  explicit AddressSpace(uint64_t base) : base_(base) {}

  // Memory was mapped, or unmapped (negative), at an address: what a trace has to tell.
  struct Change {
    uint64_t address = 0;
    int64_t bytes = 0;
  };
  // The reserved total changes by `bytes`.
  std::vector<Change> Reserve(int64_t bytes);
  // Places a block. REQUIRES: bytes > 0.
  uint64_t Take(int64_t bytes, std::vector<Change>* changes);
  // REQUIRES: Take returned `address`.
  void Give(uint64_t address);

  // A stretch of mapped memory, cut into pieces without gaps.
  struct Piece {
    uint64_t address = 0;
    int64_t bytes = 0;
    bool free = false;
  };
  using Segment = std::vector<Piece>;
  std::vector<Segment> Segments() const;

 private:
  uint64_t End() const;
  void AddFree(uint64_t address, int64_t bytes);
  void RemoveFree(std::map<uint64_t, int64_t>::iterator range);
  void Map(int64_t bytes, std::vector<Change>* changes);
  // From the highest addresses down, but not at or beyond `end`.
  void Unmap(int64_t bytes, uint64_t end, std::vector<Change>* changes);

  uint64_t base_;
  std::map<uint64_t, int64_t> used_;
  std::map<uint64_t, int64_t> free_;                // neighbours are merged
  std::set<std::pair<int64_t, uint64_t>> by_size_;  // of free_
};

}  // namespace headroom
