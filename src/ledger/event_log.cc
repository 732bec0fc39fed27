// SPDX-License-Identifier: Apache-2.0
#include "ledger/event_log.h"

#include "base/check.h"

namespace headroom {

bool EventLog::Shape::Same(const MemoryEvent& a, const MemoryEvent& b) {
  return a.bytes == b.bytes && a.module == b.module && a.op == b.op && a.component == b.component &&
         a.kind == b.kind;
}

size_t EventLog::Shape::Hash(const MemoryEvent& event) {
  const uint64_t place = uint64_t{static_cast<uint32_t>(event.module)} << 32 |
                         uint64_t{static_cast<uint16_t>(event.op)} << 16 |
                         uint64_t{static_cast<uint8_t>(event.component)} << 8 |
                         static_cast<uint8_t>(event.kind);
  uint64_t hash =
      (static_cast<uint64_t>(event.bytes) ^ place << 7 ^ place >> 29) * 0xff51afd7ed558ccdULL;
  hash ^= hash >> 32;
  hash = (hash ^ place) * 0xc4ceb9fe1a85ec53ULL;
  return hash ^ hash >> 32;
}

void EventLog::Add(const MemoryEvent& event) {
  const uint32_t type = static_cast<uint32_t>(event.type);
  entries_.push_back({event.block, NumberOf(event) << kTypeBits | type});
}

void EventLog::AddFree(size_t born) {
  Entry entry = entries_[born];
  HEADROOM_CHECK(TypeOf(entry) == MemoryEvent::Type::kAlloc, "what dies was allocated");
  entry.number |= static_cast<uint32_t>(MemoryEvent::Type::kFree);
  entries_.push_back(entry);
}

void EventLog::Reclassify(size_t at, Component component, Kind kind) {
  MemoryEvent event = (*this)[at];
  event.component = component;
  event.kind = kind;
  entries_[at].number = NumberOf(event) << kTypeBits | static_cast<uint32_t>(event.type);
}

uint32_t EventLog::NumberOf(MemoryEvent event) {
  event.block = BlockId();
  event.type = MemoryEvent::Type();
  const uint32_t number = distinct_.NumberOf(event);
  HEADROOM_CHECK(number < uint32_t{1} << (32 - kTypeBits), "too many different events");
  return number;
}

}  // namespace headroom
