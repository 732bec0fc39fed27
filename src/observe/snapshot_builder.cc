// SPDX-License-Identifier: Apache-2.0
#include "observe/snapshot_builder.h"

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "observe/snapshot_keys.h"

namespace headroom::observe {
namespace {

using Tag = PickleValue::Tag;

// A real event takes 160 to 175 bytes of file; with fewer the columns grow as they must.
constexpr uint64_t kBytesPerEvent = 130;
constexpr uint64_t kMostReserved = uint64_t{1} << 24;
// No device holds 4 TiB; and with it sums of blocks stay far from 2^63.
constexpr int64_t kLargestSize = int64_t{1} << 42;
constexpr size_t kMostEvents = size_t{1} << 28;

constexpr uint64_t Bit(SnapshotKey key) { return uint64_t{1} << static_cast<uint32_t>(key); }

SnapshotKey KeyOf(PickleValue value) {
  if (!value.is(Tag::kString)) return SnapshotKey::kNone;
  const uint64_t number = value.number();
  return number < static_cast<uint64_t>(SnapshotKey::kEnd) ? SnapshotKey(number)
                                                           : SnapshotKey::kNone;
}

bool Has(uint64_t keys, SnapshotKey key) { return (keys & Bit(key)) != 0; }

}  // namespace

SnapshotBuilder::SnapshotBuilder(uint64_t expected_bytes) {
  const uint64_t events = std::min(expected_bytes / kBytesPerEvent, kMostReserved);
  snapshot_.events.Reserve(events);
  snapshot_.contexts.emplace_back();
  snapshot_.streams.push_back(0);
}

void SnapshotBuilder::NameKeys(StringTable& strings) {
  for (size_t i = 0; i < std::size(kSnapshotStrings); ++i) {
    const StringId id = strings.Intern(kSnapshotStrings[i]);
    HEADROOM_CHECK(static_cast<size_t>(id) == i + 1, "a key of the snapshot is numbered twice");
  }
}

PickleValue SnapshotBuilder::TakeDict(PickleReader& reader, std::span<const PickleValue> pairs) {
  uint64_t keys = 0;
  for (size_t i = 0; i < pairs.size(); i += 2) keys |= Bit(KeyOf(pairs[i]));
  keys_seen_ |= keys;
  if (Has(keys, SnapshotKey::kAction)) return TakeEvent(reader, pairs);
  if (Has(keys, SnapshotKey::kFilename) && Has(keys, SnapshotKey::kName)) {
    return TakeFrame(reader, pairs);
  }
  if (Has(keys, SnapshotKey::kState) && Has(keys, SnapshotKey::kSize)) {
    snapshot_.blocks.emplace_back();
    ApplyToBlock(reader, snapshot_.blocks.back(), pairs);
    return PickleValue::Custom(kBlock, snapshot_.blocks.size() - 1);
  }
  if (Has(keys, SnapshotKey::kTotalSize) || Has(keys, SnapshotKey::kBlocks)) {
    segments_.emplace_back();
    ApplyToSegment(reader, segments_.back(), pairs);
    return PickleValue::Custom(kSegment, segments_.size() - 1);
  }
  if (Has(keys, SnapshotKey::kRealSize)) return TakeHistory(reader, pairs);
  if (Has(keys, SnapshotKey::kStage) && Has(keys, SnapshotKey::kName)) {
    return TakeAnnotation(reader, pairs);
  }
  return {};
}

PickleValue SnapshotBuilder::TakeEvent(PickleReader& reader, std::span<const PickleValue> pairs) {
  EventTable& events = snapshot_.events;
  if (events.count() >= kMostEvents) {
    reader.Fail(Format("more than {} events", kMostEvents));
    return {};
  }
  TimedEvent taken;
  ApplyToEvent(reader, taken, pairs);
  if (CompletesLast(taken.event)) {
    events.Set(events.count() - 1, taken.event);
  } else {
    events.Add(taken.event, taken.time_us);
  }
  return PickleValue::Custom(kEvent, events.count() - 1);
}

// A third of a recording are requests to free that the next event completes. The pair becomes the
// row of the request.
bool SnapshotBuilder::CompletesLast(const Event& event) const {
  if (event.action != Action::kFreeCompleted || snapshot_.events.count() == 0) return false;
  const Event& last = snapshot_.events[snapshot_.events.count() - 1];
  return last.action == Action::kFreeRequested && last.addr == event.addr &&
         last.size == event.size && last.stream == event.stream && last.stack == event.stack;
}

void SnapshotBuilder::ApplyToEvent(PickleReader& reader, TimedEvent& timed,
                                   std::span<const PickleValue> pairs) {
  Event& event = timed.event;
  EventContext context = snapshot_.contexts[event.context];
  for (size_t i = 0; i < pairs.size(); i += 2) {
    const PickleValue value = pairs[i + 1];
    switch (KeyOf(pairs[i])) {
      case SnapshotKey::kAction: {
        const uint64_t word =
            value.is(Tag::kString) ? value.number() - uint64_t(SnapshotWord::kFirstAction) : ~0ULL;
        const bool known = word < uint64_t(Action::kOther);
        event.action = known ? Action(word) : Action::kOther;
        unknown_actions_ += known ? 0 : 1;
        break;
      }
      case SnapshotKey::kAddr:
      case SnapshotKey::kDeviceFree:
        event.addr = Uint(reader, value, nullptr);
        break;
      case SnapshotKey::kSize:
        event.size = static_cast<int64_t>(Uint(reader, value, "an event"));
        break;
      case SnapshotKey::kStream:
        event.stream = StreamOf(reader, Uint(reader, value, nullptr));
        break;
      case SnapshotKey::kTimeUs:
        timed.time_us = Uint(reader, value, nullptr);
        break;
      case SnapshotKey::kFrames:
        event.stack = StackOf(reader, value);
        break;
      case SnapshotKey::kCompileContext:
        context.compile_context = Text(reader, value);
        break;
      case SnapshotKey::kUserMetadata:
        context.user_metadata = Text(reader, value);
        break;
      case SnapshotKey::kCategory:
        context.category = Text(reader, value);
        break;
      case SnapshotKey::kForwardFrames:
        context.forward_stack = StackOf(reader, value);
        break;
      case SnapshotKey::kPoolId:
      case SnapshotKey::kSegmentPoolId:
        PoolOf(reader, value, &context.pool_first, &context.pool_second);
        break;
      default:
        break;
    }
  }
  event.context = ContextOf(context);
}

void SnapshotBuilder::ExtendEvent(PickleReader& reader, size_t row,
                                  std::span<const PickleValue> pairs) {
  TimedEvent timed{snapshot_.events[row], snapshot_.events.times()[row]};
  ApplyToEvent(reader, timed, pairs);
  snapshot_.events.Set(row, timed.event);
  snapshot_.events.SetTime(row, timed.time_us);
}

PickleValue SnapshotBuilder::TakeFrame(PickleReader& reader, std::span<const PickleValue> pairs) {
  Frame frame;
  for (size_t i = 0; i < pairs.size(); i += 2) {
    const PickleValue value = pairs[i + 1];
    switch (KeyOf(pairs[i])) {
      case SnapshotKey::kName:
        frame.name = Text(reader, value);
        break;
      case SnapshotKey::kFilename:
        frame.filename = Text(reader, value);
        break;
      case SnapshotKey::kLine:
        frame.line = static_cast<uint32_t>(Uint(reader, value, nullptr));
        break;
      case SnapshotKey::kFxNodeName:
        frame.fx_node = Text(reader, value);
        break;
      case SnapshotKey::kFxNodeTarget:
        frame.fx_target = Text(reader, value);
        break;
      default:
        break;
    }
  }
  return PickleValue::Custom(kFrame, static_cast<uint64_t>(snapshot_.frames.Intern(frame)));
}

void SnapshotBuilder::ApplyToBlock(PickleReader& reader, Block& block,
                                   std::span<const PickleValue> pairs) {
  for (size_t i = 0; i < pairs.size(); i += 2) {
    const PickleValue value = pairs[i + 1];
    switch (KeyOf(pairs[i])) {
      case SnapshotKey::kAddress:
        block.address = Uint(reader, value, nullptr);
        break;
      case SnapshotKey::kSize:
        block.size = static_cast<int64_t>(Uint(reader, value, "a block"));
        break;
      case SnapshotKey::kRequestedSize:
        block.requested = static_cast<int64_t>(Uint(reader, value, "a block"));
        break;
      case SnapshotKey::kFrames:
        block.stack = StackOf(reader, value);
        break;
      case SnapshotKey::kState:
        block.state = Block::State::kInactive;
        if (value.is(Tag::kString)) {
          const auto state = StringId(value.number());
          if (state == IdOf(SnapshotWord::kActiveAllocated)) block.state = Block::State::kActive;
          if (state == IdOf(SnapshotWord::kActivePendingFree) ||
              state == IdOf(SnapshotWord::kActiveAwaitingFree)) {
            block.state = Block::State::kPendingFree;
          }
        }
        break;
      case SnapshotKey::kHistory: {
        const PickleValue history = reader.Resolve(value);
        if (!history.is_custom(kHistory)) break;
        block.requested = histories_[history.custom_number()].real_size;
        block.stack = histories_[history.custom_number()].stack;
        break;
      }
      default:
        break;
    }
  }
}

void SnapshotBuilder::ApplyToSegment(PickleReader& reader, Segment& segment,
                                     std::span<const PickleValue> pairs) {
  for (size_t i = 0; i < pairs.size(); i += 2) {
    const PickleValue value = pairs[i + 1];
    switch (KeyOf(pairs[i])) {
      case SnapshotKey::kDevice: {
        const uint64_t device = Uint(reader, value, nullptr);
        segment.device = device < kMostContexts ? static_cast<int>(device) : 0;
        break;
      }
      case SnapshotKey::kAddress:
        segment.address = Uint(reader, value, nullptr);
        break;
      case SnapshotKey::kTotalSize:
        segment.total = static_cast<int64_t>(Uint(reader, value, "a segment"));
        break;
      case SnapshotKey::kStream:
        segment.stream = Uint(reader, value, nullptr);
        break;
      case SnapshotKey::kSegmentType:
        segment.is_large =
            value.is(Tag::kString) && StringId(value.number()) == IdOf(SnapshotWord::kLarge);
        break;
      case SnapshotKey::kIsExpandable:
        segment.is_expandable = value.is(Tag::kBool) && value.number() != 0;
        break;
      case SnapshotKey::kSegmentPoolId:
        PoolOf(reader, value, &segment.pool_first, &segment.pool_second);
        break;
      case SnapshotKey::kFrames:
        segment.stack = StackOf(reader, value);
        break;
      case SnapshotKey::kBlocks:
        segment.blocks = RangeOf(reader, value, kBlockList);
        break;
      default:
        break;
    }
  }
}

PickleValue SnapshotBuilder::TakeHistory(PickleReader& reader, std::span<const PickleValue> pairs) {
  History history;
  for (size_t i = 0; i < pairs.size(); i += 2) {
    if (KeyOf(pairs[i]) == SnapshotKey::kRealSize) {
      history.real_size = static_cast<int64_t>(Uint(reader, pairs[i + 1], "a block"));
    }
    if (KeyOf(pairs[i]) == SnapshotKey::kFrames) history.stack = StackOf(reader, pairs[i + 1]);
  }
  histories_.push_back(history);
  return PickleValue::Custom(kHistory, histories_.size() - 1);
}

PickleValue SnapshotBuilder::TakeAnnotation(PickleReader& reader,
                                            std::span<const PickleValue> pairs) {
  Annotation annotation;
  for (size_t i = 0; i < pairs.size(); i += 2) {
    const PickleValue value = pairs[i + 1];
    switch (KeyOf(pairs[i])) {
      case SnapshotKey::kStage:
        annotation.is_start =
            value.is(Tag::kString) && StringId(value.number()) == IdOf(SnapshotWord::kStart);
        break;
      case SnapshotKey::kName:
        annotation.name = Text(reader, value);
        break;
      case SnapshotKey::kDevice:
        annotation.device = static_cast<int>(Uint(reader, value, nullptr) & 0xffff);
        break;
      case SnapshotKey::kTimeUs:
        annotation.time_us = Uint(reader, value, nullptr);
        break;
      default:
        break;
    }
  }
  snapshot_.annotations.push_back(annotation);
  return PickleValue::Custom(kAnnotation, snapshot_.annotations.size() - 1);
}

PickleValue SnapshotBuilder::ExtendDict(PickleReader& reader, PickleValue dict,
                                        std::span<const PickleValue> pairs) {
  switch (dict.kind()) {
    case kEvent:
      ExtendEvent(reader, dict.custom_number(), pairs);
      break;
    case kBlock:
      ApplyToBlock(reader, snapshot_.blocks[dict.custom_number()], pairs);
      break;
    case kSegment:
      ApplyToSegment(reader, segments_[dict.custom_number()], pairs);
      break;
    default:
      reader.Fail("a part of the snapshot changes after it was complete");
  }
  return dict;
}

// ---- Scalars ----

// `what` names the owner of a size, which has a limit; null for numbers that are no size.
uint64_t SnapshotBuilder::Uint(PickleReader& reader, PickleValue value, const char* what) {
  const std::optional<uint64_t> number = reader.AsUint64(value);
  if (!number) {
    wrong_types_ += value.is(Tag::kNone) ? 0 : 1;
    return 0;
  }
  if (what != nullptr && *number > uint64_t{kLargestSize}) {
    const bool negative = value.is(Tag::kInt) && value.integer() < 0;
    reader.Fail(negative ? Format("{} of {} bytes", what, value.integer())
                         : Format("{} of {} bytes, which no device has", what, *number));
    return 0;
  }
  return *number;
}

// user_metadata may be a dict: its pairs become one text, "layer=3, op=mm".
StringId SnapshotBuilder::Text(PickleReader& reader, PickleValue value) {
  if (value.is(Tag::kString)) return StringId(value.number());
  if (!value.is(Tag::kDict)) {
    const bool empty = value.is(Tag::kNone) || value.is(Tag::kOpenDict);
    wrong_types_ += empty ? 0 : 1;
    return StringId();
  }
  constexpr size_t kLongest = 1024;
  std::string text;
  const std::span<const PickleValue> items = reader.Items(value);
  for (size_t i = 0; i < items.size() && text.size() < kLongest; ++i) {
    if (i > 0) text += i % 2 == 0 ? ", " : "=";
    if (items[i].is(Tag::kString)) {
      text += reader.strings().Get(StringId(items[i].number())).substr(0, kLongest);
    } else if (const auto number = reader.AsUint64(items[i])) {
      text += Format("{}", *number);
    } else {
      text += PickleReader::Describe(items[i]);
    }
  }
  return reader.strings().full() ? StringId() : reader.strings().Intern(text);
}

uint16_t SnapshotBuilder::StreamOf(PickleReader& reader, uint64_t stream) {
  if (stream == last_stream_) return last_stream_id_;
  std::vector<uint64_t>& streams = snapshot_.streams;
  const auto found = std::find(streams.begin(), streams.end(), stream);
  const auto id = static_cast<size_t>(found - streams.begin());
  if (id == streams.size()) {
    // A process has a few dozen; a search through them is cheap, one through millions is not.
    if (id >= 4096) {
      reader.Fail("events on more than 4096 streams");
      return 0;
    }
    streams.push_back(stream);
  }
  last_stream_ = stream;
  last_stream_id_ = static_cast<uint16_t>(id);
  return last_stream_id_;
}

void SnapshotBuilder::PoolOf(PickleReader& reader, PickleValue value, uint32_t* first,
                             uint32_t* second) {
  if (value.is(Tag::kIntPair)) {
    *first = value.first();
    *second = value.second();
    return;
  }
  const std::span<const PickleValue> items = reader.Items(value);  // JSON made a list of it
  if (items.size() != 2) return;
  *first = static_cast<uint32_t>(reader.AsUint64(items[0]).value_or(0));
  *second = static_cast<uint32_t>(reader.AsUint64(items[1]).value_or(0));
}

}  // namespace headroom::observe
