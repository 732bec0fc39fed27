// SPDX-License-Identifier: Apache-2.0
#include "report/address_space.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace headroom {
namespace {

// What is mapped, by byte, as the changes tell it: nothing is mapped or unmapped twice.
class Mapped {
 public:
  void Apply(const std::vector<AddressSpace::Change>& changes) {
    for (const auto& [address, bytes] : changes) {
      const int64_t size = bytes < 0 ? -bytes : bytes;
      for (uint64_t at = address; at < address + static_cast<uint64_t>(size); ++at) {
        EXPECT_EQ(map_[at], bytes < 0) << at;
        map_[at] = bytes > 0;
      }
      total_ += bytes;
    }
  }
  bool Holds(uint64_t address, int64_t bytes) {
    for (uint64_t at = address; at < address + static_cast<uint64_t>(bytes); ++at) {
      if (!map_[at]) return false;
    }
    return true;
  }
  int64_t total() const { return total_; }

 private:
  std::map<uint64_t, bool> map_;
  int64_t total_ = 0;
};

TEST(AddressSpace, PlacesEveryBlockInMappedMemoryOfItsOwn) {
  std::mt19937 random(7);
  for (int run = 0; run < 20; ++run) {
    AddressSpace space(1000);
    Mapped mapped;
    std::map<uint64_t, int64_t> blocks;
    int64_t allocated = 0;
    for (int i = 0; i < 300; ++i) {
      const auto bytes = static_cast<int64_t>(1 + random() % 40);
      if (random() % 3 != 0) {
        if (allocated + bytes > mapped.total()) mapped.Apply(space.Reserve(bytes));
        std::vector<AddressSpace::Change> changes;
        const uint64_t address = space.Take(bytes, &changes);
        mapped.Apply(changes);
        EXPECT_TRUE(mapped.Holds(address, bytes));
        blocks[address] = bytes;
        allocated += bytes;
      } else if (!blocks.empty()) {
        auto block = blocks.begin();
        std::advance(block, random() % blocks.size());
        space.Give(block->first);
        allocated -= block->second;
        blocks.erase(block);
      }
      if (random() % 10 == 0) mapped.Apply(space.Reserve(-(mapped.total() - allocated) / 2));
    }
    int64_t used = 0;
    int64_t all = 0;
    for (const AddressSpace::Segment& segment : space.Segments()) {
      uint64_t end = segment.front().address;
      for (const AddressSpace::Piece& piece : segment) {
        EXPECT_EQ(piece.address, end);
        EXPECT_EQ(piece.free, !blocks.contains(piece.address));
        EXPECT_TRUE(mapped.Holds(piece.address, piece.bytes));
        end += static_cast<uint64_t>(piece.bytes);
        used += piece.free ? 0 : piece.bytes;
        all += piece.bytes;
      }
    }
    EXPECT_EQ(used, allocated);
    EXPECT_EQ(all, mapped.total());
  }
}

TEST(AddressSpace, MakesRoomAtTheEndOutOfFreeBytesElsewhere) {
  AddressSpace space(0);
  std::vector<AddressSpace::Change> changes = space.Reserve(20);
  const uint64_t first = space.Take(8, &changes);
  space.Take(6, &changes);
  space.Give(first);
  EXPECT_EQ(space.Take(12, &changes), 14U);
  ASSERT_EQ(changes.size(), 3U);
  EXPECT_EQ(changes[1].bytes, -6);
  EXPECT_EQ(changes[2].address, 20U);
  EXPECT_EQ(changes[2].bytes, 6);
}

TEST(AddressSpace, TakesMoreThanIsReservedWhereALedgerSaysSo) {
  AddressSpace space(0);
  std::vector<AddressSpace::Change> changes;
  EXPECT_EQ(space.Take(5, &changes), 0U);
  EXPECT_EQ(space.Take(5, &changes), 5U);
}

}  // namespace
}  // namespace headroom
