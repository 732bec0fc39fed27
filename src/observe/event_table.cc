// SPDX-License-Identifier: Apache-2.0
#include "observe/event_table.h"

namespace headroom::observe {
namespace {

size_t Hash(const Event& event) {
  uint64_t hash = event.addr;
  const auto mix = [&](uint64_t part) {
    hash = (hash ^ part) * 0xff51afd7ed558ccdULL;
    hash ^= hash >> 32;
  };
  mix(static_cast<uint64_t>(event.size));
  mix(uint64_t{static_cast<uint32_t>(event.stack)} << 32 | uint64_t{event.stream} << 16 |
      event.context);
  mix(static_cast<uint64_t>(event.action));
  return hash;
}

}  // namespace

EventTable::EventTable() : slots_(1024, 0) {}

void EventTable::Reserve(size_t events) {
  numbers_.reserve(events);
  times_.Reserve(events);
}

void EventTable::Add(const Event& event, uint64_t time_us) {
  numbers_.push_back(Number(event));
  times_.Add(time_us);
}

uint32_t EventTable::Number(const Event& event) {
  if (distinct_.size() * 2 >= slots_.size()) Grow();
  const size_t mask = slots_.size() - 1;
  size_t slot = Hash(event) & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    if (distinct_[slots_[slot] - 1] == event) return slots_[slot] - 1;
  }
  distinct_.push_back(event);
  slots_[slot] = static_cast<uint32_t>(distinct_.size());
  return slots_[slot] - 1;
}

void EventTable::Grow() {
  slots_.assign(slots_.size() * 2, 0);
  const size_t mask = slots_.size() - 1;
  for (size_t i = 0; i < distinct_.size(); ++i) {
    size_t slot = Hash(distinct_[i]) & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<uint32_t>(i) + 1;
  }
}

}  // namespace headroom::observe
