// SPDX-License-Identifier: Apache-2.0
#include "observe/event_table.h"

namespace headroom::observe {

size_t EventTable::Whole::Hash(const Event& event) {
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

void EventTable::Reserve(size_t events) {
  numbers_.reserve(events);
  times_.Reserve(events);
}

void EventTable::Add(const Event& event, uint64_t time_us) {
  numbers_.push_back(distinct_.NumberOf(event));
  times_.Add(time_us);
}

void EventTable::Set(size_t at, const Event& event) { numbers_[at] = distinct_.NumberOf(event); }

}  // namespace headroom::observe
