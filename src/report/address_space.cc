// SPDX-License-Identifier: Apache-2.0
#include "report/address_space.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace headroom {
namespace {

uint64_t EndOf(const std::pair<const uint64_t, int64_t>& range) {
  return range.first + static_cast<uint64_t>(range.second);
}

}  // namespace

uint64_t AddressSpace::End() const {
  const uint64_t used = used_.empty() ? base_ : EndOf(*used_.rbegin());
  return free_.empty() ? used : std::max(used, EndOf(*free_.rbegin()));
}

std::vector<AddressSpace::Change> AddressSpace::Reserve(int64_t bytes) {
  std::vector<Change> changes;
  if (bytes > 0) {
    Map(bytes, &changes);
  } else {
    Unmap(-bytes, End(), &changes);
  }
  return changes;
}

uint64_t AddressSpace::Take(int64_t bytes, std::vector<Change>* changes) {
  if (by_size_.lower_bound({bytes, 0}) == by_size_.end()) {
    const bool at_end = !free_.empty() && EndOf(*free_.rbegin()) == End();
    const int64_t missing = bytes - (at_end ? free_.rbegin()->second : 0);
    Unmap(missing, at_end ? free_.rbegin()->first : End(), changes);
    Map(missing, changes);
  }
  const auto found = by_size_.lower_bound({bytes, 0});
  HEADROOM_CHECK(found != by_size_.end(), "there is room now");
  const auto [size, address] = *found;
  RemoveFree(free_.find(address));
  if (size > bytes) AddFree(address + static_cast<uint64_t>(bytes), size - bytes);
  used_[address] = bytes;
  return address;
}

void AddressSpace::Give(uint64_t address) {
  const auto block = used_.find(address);
  HEADROOM_CHECK(block != used_.end(), "what is given was taken");
  const int64_t bytes = block->second;
  used_.erase(block);
  AddFree(address, bytes);
}

void AddressSpace::AddFree(uint64_t address, int64_t bytes) {
  const auto next = free_.lower_bound(address);
  if (next != free_.end() && next->first == address + static_cast<uint64_t>(bytes)) {
    bytes += next->second;
    RemoveFree(next);
  }
  const auto after = free_.lower_bound(address);
  if (after != free_.begin() && EndOf(*std::prev(after)) == address) {
    const auto before = std::prev(after);
    address = before->first;
    bytes += before->second;
    RemoveFree(before);
  }
  free_[address] = bytes;
  by_size_.emplace(bytes, address);
}

void AddressSpace::RemoveFree(std::map<uint64_t, int64_t>::iterator range) {
  by_size_.erase({range->second, range->first});
  free_.erase(range);
}

void AddressSpace::Map(int64_t bytes, std::vector<Change>* changes) {
  if (bytes <= 0) return;
  const uint64_t address = End();
  changes->push_back({address, bytes});
  AddFree(address, bytes);
}

void AddressSpace::Unmap(int64_t bytes, uint64_t end, std::vector<Change>* changes) {
  while (bytes > 0) {
    const auto after = free_.lower_bound(end);
    if (after == free_.begin()) return;
    const auto range = std::prev(after);
    const auto [address, size] = *range;
    const int64_t part = std::min(bytes, size);
    const uint64_t from = address + static_cast<uint64_t>(size - part);
    changes->push_back({from, -part});
    RemoveFree(range);
    if (part < size) AddFree(address, size - part);
    bytes -= part;
    end = address;
  }
}

std::vector<AddressSpace::Segment> AddressSpace::Segments() const {
  Segment all;
  for (const auto& [address, bytes] : used_) all.push_back({address, bytes, false});
  for (const auto& [address, bytes] : free_) all.push_back({address, bytes, true});
  std::ranges::sort(all, {}, &Piece::address);
  std::vector<Segment> segments;
  uint64_t end = 0;
  for (const Piece& piece : all) {
    if (segments.empty() || piece.address != end) segments.emplace_back();
    segments.back().push_back(piece);
    end = piece.address + static_cast<uint64_t>(piece.bytes);
  }
  return segments;
}

}  // namespace headroom
