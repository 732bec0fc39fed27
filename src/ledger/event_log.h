// SPDX-License-Identifier: Apache-2.0
//
// EventLog: the events of a ledger, in order, each different one once.
//
// Steps of training repeat their requests, so that millions of events are thousands of different
// ones: an event costs eight bytes, those of its block and of the number of all the rest.
//
//   alloc #7 4 MiB mlp | free #7 | alloc #8 4 MiB mlp       blocks 7 7 8, numbers 3 3 3
//
// Reading puts an event together again, so it comes by value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ledger/component.h"
#include "ledger/distinct_values.h"

namespace headroom {

// Positions in the ledger's tables; strong types so that they cannot be mixed up.
enum class BlockId : uint32_t {};
enum class ModuleId : uint32_t {};  // 0 is "", the model as a whole
enum class OpId : uint16_t {};      // 0 is "", no operation known

struct MemoryEvent {
  enum class Type : uint8_t {
    kAlloc,    // `block` comes alive with `bytes`
    kFree,     // `block` dies; `bytes` as allocated
    kReserve,  // the allocator takes (+) or gives back (-) `bytes` from the device
    kMark,     // a phase ends here; `block` is the position in Ledger::marks()
  };
  int64_t bytes = 0;
  BlockId block{};
  ModuleId module{};
  OpId op{};
  Type type = Type::kAlloc;
  Component component = Component::kActivations;
  Kind kind = Kind::kOther;
};

class EventLog {
 public:
  class Iterator {
   public:
    Iterator(const EventLog* log, size_t at) : log_(log), at_(at) {}
    MemoryEvent operator*() const { return (*log_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    const EventLog* log_;
    size_t at_;
  };

  void Reserve(size_t events) { entries_.reserve(events); }
  void Add(const MemoryEvent& event);
  // The block that the event at `born` allocated dies. REQUIRES: born < size().
  void AddFree(size_t born);
  // REQUIRES: at < size().
  void Reclassify(size_t at, Component component, Kind kind);

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  MemoryEvent operator[](size_t at) const {
    const Entry entry = entries_[at];
    MemoryEvent event = distinct_[entry.number >> kTypeBits];
    event.block = entry.block;
    event.type = TypeOf(entry);
    return event;
  }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

 private:
  static constexpr uint32_t kTypeBits = 2;
  struct Entry {
    BlockId block{};
    uint32_t number = 0;  // position in distinct_, and the type in the lowest bits
  };
  static MemoryEvent::Type TypeOf(Entry entry) {
    return MemoryEvent::Type(entry.number & ((1U << kTypeBits) - 1));
  }
  uint32_t NumberOf(MemoryEvent event);

  std::vector<Entry> entries_;
  // All but the block and the type.
  struct Shape {
    static size_t Hash(const MemoryEvent& event);
    static bool Same(const MemoryEvent& a, const MemoryEvent& b);
  };
  DistinctValues<MemoryEvent, Shape> distinct_{256};
};

}  // namespace headroom
