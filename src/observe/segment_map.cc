// SPDX-License-Identifier: Apache-2.0
//
// The rules are those of c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h, PyTorch
// 2.11: round_size, should_split, try_merge_blocks.
#include "observe/segment_map.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace headroom::observe {
namespace {

constexpr int64_t kMinBlockSize = 512;
constexpr uint64_t kMostWalked = 200'000'000;
constexpr int64_t kSmallSize = 1 << 20;  // requests up to here share segments of 2 MiB

}  // namespace

size_t AddressMap::Home(uint64_t address) const {
  uint64_t hash = (address >> 9) * 0x9e3779b97f4a7c15ULL;
  hash ^= hash >> 32;
  return hash & (slots_.size() - 1);
}

uint32_t* AddressMap::Find(uint64_t address) {
  for (size_t at = Home(address); slots_[at].used; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].address == address) return &slots_[at].value;
  }
  return nullptr;
}

void AddressMap::Set(uint64_t address, uint32_t value) {
  if (uint32_t* known = Find(address)) {
    *known = value;
    return;
  }
  if (size_ * 2 >= slots_.size()) {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    size_ = 0;
    for (const Slot& slot : old) {
      if (slot.used) Set(slot.address, slot.value);
    }
  }
  size_t at = Home(address);
  while (slots_[at].used) at = (at + 1) & (slots_.size() - 1);
  slots_[at] = {address, value, true};
  ++size_;
}

void AddressMap::Erase(uint64_t address) {
  const size_t mask = slots_.size() - 1;
  size_t hole = Home(address);
  while (slots_[hole].used && slots_[hole].address != address) hole = (hole + 1) & mask;
  if (!slots_[hole].used) return;
  // Move back what the hole would cut off from its home.
  for (size_t at = (hole + 1) & mask; slots_[at].used; at = (at + 1) & mask) {
    const size_t home = Home(slots_[at].address);
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = {};
  --size_;
}

Rounding::Rounding(const std::optional<AllocatorSettings>& settings) {
  if (!settings) return;
  for (const auto& [mib, divisions] : settings->roundup_power2_divisions) {
    if (mib < 1 || mib > 32768 || divisions < 2) continue;
    divisions_[std::bit_width(static_cast<uint64_t>(mib)) - 1] = divisions;
    any_ = true;
  }
}

int64_t Rounding::operator()(int64_t size) const {
  if (size < kMinBlockSize) return kMinBlockSize;
  if (any_) {
    const int log = static_cast<int>(std::bit_width(static_cast<uint64_t>(size))) - 1;
    const int64_t divisions = divisions_[std::clamp(log - 20, 0, 15)];
    if (divisions > 1 && size > kMinBlockSize * divisions) {
      const int64_t floor = int64_t{1} << log;
      const int shift = static_cast<int>(std::bit_width(static_cast<uint64_t>(divisions))) - 1;
      const int64_t step = floor >> shift;
      if (size == floor) return size;
      if (step == 0) return floor << 1;
      return (size + step - 1) / step * step;
    }
  }
  return (size + kMinBlockSize - 1) / kMinBlockSize * kMinBlockSize;
}

SegmentMap::SegmentMap(const std::optional<AllocatorSettings>& settings)
    : round_(settings),
      max_split_size_(settings && settings->max_split_size ? settings->max_split_size->count()
                                                           : std::numeric_limits<int64_t>::max()),
      nodes_(1) {}

uint32_t SegmentMap::NewNode(const Node& node) {
  uint32_t at = 0;
  if (spare_.empty()) {
    at = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back(node);
  } else {
    at = spare_.back();
    spare_.pop_back();
    nodes_[at] = node;
  }
  at_.Set(node.address, at);
  return at;
}

void SegmentMap::Drop(uint32_t node) {
  if (const uint32_t* known = at_.Find(nodes_[node].address); known != nullptr && *known == node) {
    at_.Erase(nodes_[node].address);
  }
  spare_.push_back(node);
}

void SegmentMap::AddSegment(uint64_t address, int64_t size) {
  if (at_.Find(address) != nullptr) RemoveSegment(address);
  NewNode({address, size, 0, 0, true});
}

void SegmentMap::RemoveSegment(uint64_t address) {
  const uint32_t* first = at_.Find(address);
  if (first == nullptr) return;
  uint32_t node = *first;
  if (nodes_[node].previous != 0) nodes_[nodes_[node].previous].next = 0;
  while (node != 0) {
    const uint32_t next = nodes_[node].next;
    Drop(node);
    node = next;
  }
}

void SegmentMap::Cut(uint32_t node, int64_t size) {
  const Node whole = nodes_[node];
  const uint32_t rest = NewNode(
      {whole.address + static_cast<uint64_t>(size), whole.size - size, node, whole.next, true});
  if (whole.next != 0) nodes_[whole.next].previous = rest;
  nodes_[node].next = rest;
  nodes_[node].size = size;
}

int64_t SegmentMap::Take(uint64_t address, int64_t size) {
  const int64_t rounded = round_(size);
  const uint32_t* known = at_.Find(address);
  if (known == nullptr || !nodes_[*known].free || nodes_[*known].size < rounded) {
    return rounded;
  }
  const uint32_t node = *known;
  const int64_t rest = nodes_[node].size - rounded;
  const bool split = rounded <= kSmallSize ? rest >= kMinBlockSize
                                           : rounded < max_split_size_ && rest > kSmallSize;
  if (split) Cut(node, rounded);
  nodes_[node].free = false;
  return nodes_[node].size;
}

bool SegmentMap::HasFree(uint64_t address) {
  const uint32_t* known = at_.Find(address);
  return known != nullptr && nodes_[*known].free;
}

uint32_t SegmentMap::Holding(uint64_t address) {
  if (at_.size() == 0 || walked_ > kMostWalked) return 0;
  walked_ += at_.slot_count();
  uint32_t found = 0;
  at_.ForEach([&](uint64_t, uint32_t at) {
    const Node& node = nodes_[at];
    if (node.address <= address && address - node.address < static_cast<uint64_t>(node.size)) {
      found = at;
    }
  });
  return found;
}

std::optional<SegmentMap::Rest> SegmentMap::FindRest(uint64_t address) {
  const uint32_t node = Holding(address);
  if (node == 0 || !nodes_[node].free || nodes_[node].address == address) return std::nullopt;
  const auto bytes = static_cast<int64_t>(address - nodes_[node].address);
  const uint32_t owner = nodes_[node].previous;
  Cut(node, bytes);
  if (owner == 0 || nodes_[owner].free || bytes > kSmallSize) return std::nullopt;
  MergeNext(owner);
  return Rest{nodes_[owner].address, bytes};
}

int64_t SegmentMap::TakeKnown(uint64_t address, int64_t size, bool exact) {
  const uint32_t* start = at_.Find(address);
  uint32_t node = start != nullptr ? *start : Holding(address);
  if (node == 0 || !nodes_[node].free) return size;
  if (nodes_[node].address != address) {
    Cut(node, static_cast<int64_t>(address - nodes_[node].address));
    node = nodes_[node].next;
  }
  const int64_t rest = nodes_[node].size - size;
  // Behind a block of the large pool no rest of up to 1 MiB can stand: it was given away whole.
  const int64_t least = exact ? 1 : size <= kSmallSize ? kMinBlockSize : kSmallSize + 1;
  if (rest >= least) Cut(node, size);
  nodes_[node].free = false;
  return nodes_[node].size;
}

void SegmentMap::MergeNext(uint32_t node) {
  const uint32_t next = nodes_[node].next;
  nodes_[node].size += nodes_[next].size;
  nodes_[node].next = nodes_[next].next;
  if (nodes_[node].next != 0) nodes_[nodes_[node].next].previous = node;
  Drop(next);
}

void SegmentMap::Give(uint64_t address) {
  const uint32_t* known = at_.Find(address);
  if (known == nullptr) return;
  uint32_t node = *known;
  nodes_[node].free = true;
  if (const uint32_t next = nodes_[node].next; next != 0 && nodes_[next].free) MergeNext(node);
  if (const uint32_t before = nodes_[node].previous; before != 0 && nodes_[before].free) {
    MergeNext(before);
  }
}

}  // namespace headroom::observe
