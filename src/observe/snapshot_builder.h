// SPDX-License-Identifier: Apache-2.0
//
// SnapshotBuilder: recognises the dicts of a memory snapshot while PickleReader reads them, and
// files them into the columns of a Snapshot. Keys are compared by number: the table of strings
// starts with the names of SnapshotKey.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "observe/pickle_reader.h"
#include "observe/snapshot.h"

namespace headroom::observe {

class SnapshotBuilder final : public PickleSchema {
 public:
  // `expected_bytes` sizes the columns.
  explicit SnapshotBuilder(uint64_t expected_bytes);
  // Puts the known names into `strings`, which must be new.
  void NameKeys(StringTable& strings);

  PickleValue TakeDict(PickleReader& reader, std::span<const PickleValue> pairs) override;
  PickleValue TakeList(PickleReader& reader, std::span<PickleValue> items, uint32_t memo) override;
  PickleValue ExtendDict(PickleReader& reader, PickleValue dict,
                         std::span<const PickleValue> pairs) override;
  PickleValue ExtendList(PickleReader& reader, PickleValue list,
                         std::span<PickleValue> items) override;
  uint32_t MemoOf(PickleValue list) const override;
  PickleValue WithMemo(PickleValue list, uint32_t memo) const override;

  // The snapshot whose pickle ended with `top`.
  Result<Snapshot> Finish(PickleReader& reader, PickleValue top);

 private:
  // Kinds of kCustom values. Lists are numbers in lists_, a stack is its id and its memo entry.
  enum Kind : uint8_t {
    kFrame,
    kStack,
    kEvent,
    kEventList,
    kBlock,
    kBlockList,
    kSegment,
    kSegmentList,
    kAnnotation,
    kAnnotationList,
    kHistory,  // of PyTorch 1.13 to 2.0: what a block was last used for
  };
  struct History {
    int64_t real_size = 0;
    StackId stack{};
  };

  struct TimedEvent {
    Event event;
    uint64_t time_us = 0;
  };
  void ApplyToEvent(PickleReader& reader, TimedEvent& timed, std::span<const PickleValue> pairs);
  void ApplyToBlock(PickleReader& reader, Block& block, std::span<const PickleValue> pairs);
  void ApplyToSegment(PickleReader& reader, Segment& segment, std::span<const PickleValue> pairs);
  PickleValue TakeEvent(PickleReader& reader, std::span<const PickleValue> pairs);
  void ExtendEvent(PickleReader& reader, size_t row, std::span<const PickleValue> pairs);
  bool CompletesLast(const Event& event) const;
  PickleValue TakeFrame(PickleReader& reader, std::span<const PickleValue> pairs);
  PickleValue TakeHistory(PickleReader& reader, std::span<const PickleValue> pairs);
  PickleValue TakeAnnotation(PickleReader& reader, std::span<const PickleValue> pairs);
  PickleValue TakeStack(PickleReader& reader, std::span<const PickleValue> frames, uint32_t memo);
  PickleValue TakeStackOfStrings(PickleReader& reader, std::span<const PickleValue> lines);
  // Adds the rows that `items` stand for, which must follow each other and the range.
  bool Extend(PickleReader& reader, Range* range, Kind member, std::span<const PickleValue> items);

  StackId StackOf(PickleReader& reader, PickleValue frames);
  uint64_t Uint(PickleReader& reader, PickleValue value, const char* what);
  StringId Text(PickleReader& reader, PickleValue value);
  uint16_t StreamOf(PickleReader& reader, uint64_t stream);
  uint16_t ContextOf(const EventContext& context);
  static void PoolOf(PickleReader& reader, PickleValue value, uint32_t* first, uint32_t* second);

  Range RangeOf(PickleReader& reader, PickleValue list, Kind kind);
  std::vector<Range> DeviceRanges(PickleReader& reader, PickleValue traces);
  void ReadSettings(PickleReader& reader, PickleValue settings);
  Status FinishSegments(std::vector<Segment>* out, Range rows);
  void SortAnnotations();
  std::string Era() const;

  static constexpr size_t kMostContexts = 65535;  // what Event::context can number

  Snapshot snapshot_;
  std::vector<Range> lists_;
  std::vector<Segment> segments_;
  std::vector<History> histories_;
  struct ContextHash {
    size_t operator()(const EventContext& context) const;
  };
  std::unordered_map<EventContext, uint16_t, ContextHash> context_ids_;
  EventContext last_context_;
  uint16_t last_context_id_ = 0;
  bool contexts_overflowed_ = false;
  uint64_t last_stream_ = 0;
  uint16_t last_stream_id_ = 0;
  uint64_t keys_seen_ = 0;  // bit per SnapshotKey
  uint64_t unknown_actions_ = 0;
  uint64_t wrong_types_ = 0;
};

}  // namespace headroom::observe
