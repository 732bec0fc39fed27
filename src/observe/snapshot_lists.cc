// SPDX-License-Identifier: Apache-2.0
//
// The half of SnapshotBuilder that deals with lists: stacks, and runs of rows in a table.

#include "base/format.h"
#include "observe/snapshot_builder.h"
#include "observe/snapshot_keys.h"

namespace headroom::observe {
namespace {

using Tag = PickleValue::Tag;

constexpr size_t kMostStacks = size_t{1} << 24;
constexpr uint64_t kMostFrames = uint64_t{1} << 22;  // over all stacks, beside the file's share
constexpr int kMemoBits = 32;                        // of a stack's 56; its number has the others

}  // namespace

PickleValue SnapshotBuilder::TakeList(PickleReader& reader, std::span<PickleValue> items,
                                      uint32_t memo) {
  if (items.empty()) return {};
  const PickleValue front = items[0];
  if (front.is(Tag::kDict)) {
    for (PickleValue& item : items) item = reader.Resolve(item);
    if (!items[0].is(Tag::kDict)) return TakeList(reader, items, memo);
    return {};
  }
  if (front.is(Tag::kString)) return TakeStackOfStrings(reader, items);
  if (!front.is(Tag::kCustom)) return {};
  Kind list = kEventList;
  switch (front.kind()) {
    case kFrame:
      return TakeStack(reader, items, memo);
    case kHistory:
      return front;  // the newest stands first, and it is the one that counts
    case kEvent:
      list = kEventList;
      break;
    case kBlock:
      list = kBlockList;
      break;
    case kSegment:
      list = kSegmentList;
      break;
    case kAnnotation:
      list = kAnnotationList;
      break;
    default:
      return {};  // a list of lists
  }
  Range range{static_cast<uint32_t>(front.custom_number()), 0};
  if (!Extend(reader, &range, Kind(front.kind()), items)) return {};
  lists_.push_back(range);
  return PickleValue::Custom(list, lists_.size() - 1);
}

PickleValue SnapshotBuilder::ExtendList(PickleReader& reader, PickleValue list,
                                        std::span<PickleValue> items) {
  switch (list.kind()) {
    case kEventList:
      Extend(reader, &lists_[list.custom_number()], kEvent, items);
      return list;
    case kBlockList:
      Extend(reader, &lists_[list.custom_number()], kBlock, items);
      return list;
    case kSegmentList:
      Extend(reader, &lists_[list.custom_number()], kSegment, items);
      return list;
    case kAnnotationList:
      Extend(reader, &lists_[list.custom_number()], kAnnotation, items);
      return list;
    case kHistory:
      return list;
    case kStack: {
      // More frames than a pickler writes at once: a plain list until an event asks for the stack.
      std::vector<PickleValue> frames;
      for (const FrameId frame : snapshot_.stacks[StackId(list.custom_number() >> kMemoBits)]) {
        frames.push_back(PickleValue::Custom(kFrame, static_cast<uint64_t>(frame)));
      }
      frames.insert(frames.end(), items.begin(), items.end());
      return reader.MakeList(frames);
    }
    default:
      reader.Fail("items appended to what is no list");
      return list;
  }
}

uint32_t SnapshotBuilder::MemoOf(PickleValue list) const {
  return list.is_custom(kStack) ? static_cast<uint32_t>(list.custom_number()) : 0;
}

PickleValue SnapshotBuilder::WithMemo(PickleValue list, uint32_t memo) const {
  if (!list.is_custom(kStack)) return {};
  const uint64_t stack = list.custom_number() >> kMemoBits;
  return PickleValue::Custom(kStack, stack << kMemoBits | memo);
}

bool SnapshotBuilder::Extend(PickleReader& reader, Range* range, Kind member,
                             std::span<const PickleValue> items) {
  for (const PickleValue item : items) {
    if (!item.is_custom(member)) {
      reader.Fail(Format("{} among the entries of the snapshot", PickleReader::Describe(item)));
      return false;
    }
    // Both events of a free are one row.
    const bool again =
        member == kEvent && range->count > 0 && item.custom_number() + 1 == range->end();
    if (again) continue;
    if (item.custom_number() != range->end()) {
      reader.Fail("an entry of the snapshot stands in two lists");
      return false;
    }
    ++range->count;
  }
  return true;
}

PickleValue SnapshotBuilder::TakeStack(PickleReader& reader, std::span<const PickleValue> frames,
                                       uint32_t memo) {
  for (const PickleValue frame : frames) {
    if (!frame.is_custom(kFrame)) {
      reader.Fail(Format("{} among the frames of a stack", PickleReader::Describe(frame)));
      return {};
    }
  }
  const StackId stack = snapshot_.stacks.Intern(
      frames.size(), [&](size_t i) { return FrameId(frames[i].custom_number()); });
  if (snapshot_.stacks.size() >= kMostStacks ||
      snapshot_.stacks.frame_count() > kMostFrames + reader.bytes_read() / 2) {
    reader.Fail("more different stacks than a snapshot can have");
    return {};
  }
  return PickleValue::Custom(kStack, static_cast<uint64_t>(stack) << kMemoBits | memo);
}

// forward_frames: the lines of a Python traceback. Each becomes a frame that is all name.
PickleValue SnapshotBuilder::TakeStackOfStrings(PickleReader& reader,
                                                std::span<const PickleValue> lines) {
  std::vector<PickleValue> frames;
  for (const PickleValue line : lines) {
    Frame frame;
    frame.name = Text(reader, line);
    frames.push_back(PickleValue::Custom(kFrame, uint64_t(snapshot_.frames.Intern(frame))));
  }
  return TakeStack(reader, frames, 0);
}

StackId SnapshotBuilder::StackOf(PickleReader& reader, PickleValue frames) {
  const PickleValue stack = reader.Resolve(frames);
  if (stack.is_custom(kStack)) return StackId(stack.custom_number() >> kMemoBits);
  const bool empty = stack.is(Tag::kOpenList) || stack.is(Tag::kNone);
  wrong_types_ += empty ? 0 : 1;
  return StackId();
}

Range SnapshotBuilder::RangeOf(PickleReader& reader, PickleValue list, Kind kind) {
  const PickleValue rows = reader.Resolve(list);
  if (rows.is_custom(kind)) return lists_[rows.custom_number()];
  const bool empty = rows.is(Tag::kOpenList) || rows.is(Tag::kNone);
  wrong_types_ += empty ? 0 : 1;
  return {};
}

size_t SnapshotBuilder::ContextHash::operator()(const EventContext& context) const {
  uint64_t hash = 0;
  for (const uint32_t part : {uint32_t(context.compile_context), uint32_t(context.user_metadata),
                              uint32_t(context.category), context.pool_first, context.pool_second,
                              uint32_t(context.forward_stack)}) {
    hash = (hash ^ part) * 0xff51afd7ed558ccdULL;
    hash ^= hash >> 32;
  }
  return hash;
}

uint16_t SnapshotBuilder::ContextOf(const EventContext& context) {
  if (context == last_context_) return last_context_id_;
  const auto [entry, added] =
      context_ids_.try_emplace(context, static_cast<uint16_t>(snapshot_.contexts.size()));
  if (added) {
    if (snapshot_.contexts.size() >= kMostContexts) {
      context_ids_.erase(entry);
      contexts_overflowed_ = true;
      return 0;
    }
    snapshot_.contexts.push_back(context);
  }
  last_context_ = context;
  last_context_id_ = entry->second;
  return last_context_id_;
}

}  // namespace headroom::observe
