// SPDX-License-Identifier: Apache-2.0
//
// The half of PickleReader that deals with containers and the memo.

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "observe/pickle_reader.h"

namespace headroom::observe {
namespace {

using Tag = PickleValue::Tag;

// Tables may always hold this much; beyond it the bytes read so far are the bound.
constexpr uint64_t kSlack = uint64_t{1} << 20;
// Picklers number their memo from 0 up; optimizers of pickles leave small gaps.
constexpr uint64_t kLargestMemoGap = uint64_t{1} << 12;
constexpr uint32_t kLongestPairMember = 1U << 30;

}  // namespace

PickleReader::Next PickleReader::Get(uint64_t index) {
  const PickleValue value = index < memo_.size() ? memo_[index] : PickleValue();
  if (value.is(Tag::kUnset)) {
    return FailWith(Format("memo entry {} is read before it is written", index));
  }
  Push(value);
  return Next::kContinue;
}

PickleReader::Next PickleReader::Memoize(uint64_t index) {
  if (top_ == 0) return FailWith("nothing on the stack to remember");
  if (index >= memo_.size() + kLargestMemoGap) {
    return FailWith(Format("memo entry {} is far beyond the {} in use", index, memo_.size()));
  }
  PickleValue& value = stack_[top_ - 1];
  // An empty container must find its memo entry again when it is filled.
  if (value.is(Tag::kOpenList) || value.is(Tag::kOpenDict)) {
    value = PickleValue::Of(value.tag(), index + 1);
  }
  if (index < memo_.size()) lists_.Clear();
  memo_.Set(index, value);
  return Next::kContinue;
}

// What stands at `position` is from now on `value`, in the memo too.
void PickleReader::Replace(size_t position, PickleValue value) {
  const PickleValue old = std::exchange(stack_[position], value);
  const bool open = old.is(Tag::kOpenList) || old.is(Tag::kOpenDict);
  const uint64_t memo = open ? old.number() : old.is(Tag::kCustom) ? schema_->MemoOf(old) : 0;
  if (memo > 0 && memo <= memo_.size() && memo_[memo - 1] == old) {
    memo_.Set(memo - 1, value);
  }
}

PickleReader::Next PickleReader::StepOpen(PickleOpcode opcode, Cursor& cursor) {
  ++cursor.at;
  switch (opcode) {
    case PickleOpcode::kEmptyDict:
      Push(PickleValue::Of(Tag::kOpenDict, 0));
      break;
    case PickleOpcode::kEmptyList:
      Push(PickleValue::Of(Tag::kOpenList, 0));
      break;
    case PickleOpcode::kEmptyTuple:
      Push(PickleValue::Of(Tag::kTuple, 0));
      break;
    default:
      if (marks_.size() >= kMostNesting) {
        return FailWith(Format("nested deeper than {} levels", kMostNesting));
      }
      marks_.push_back(top_);
      if (top_ > 0 && stack_[top_ - 1].is(Tag::kOpenList)) return StepListOfGets(cursor);
  }
  return Next::kContinue;
}

PickleReader::Next PickleReader::StepListOfGets(Cursor& cursor) {
  const char* start = cursor.at;
  const size_t target = top_ - 1;
  const auto memo = static_cast<uint32_t>(stack_[target].number());
  size_t length = 0;
  const PickleValue guess = lists_.Guess({start, static_cast<size_t>(cursor.end - start)}, &length);
  if (!guess.is(Tag::kUnset)) {
    marks_.pop_back();
    Replace(target, schema_->WithMemo(guess, memo));
    cursor.at += length;
    return Next::kContinue;
  }
  RunGets(cursor);
  const bool whole = cursor.at < cursor.end && cursor.at > start &&
                     PickleOpcode(static_cast<uint8_t>(*cursor.at)) == PickleOpcode::kAppends;
  if (!whole) return Next::kContinue;
  const Next next = StepFill(PickleOpcode::kAppends, cursor);
  const PickleValue shared =
      next == Next::kContinue ? schema_->WithMemo(stack_[target], 0) : PickleValue();
  if (!shared.is(Tag::kUnset)) {
    lists_.Learn({start, static_cast<size_t>(cursor.at - start)}, shared);
  }
  return next;
}

PickleReader::Next PickleReader::StepFill(PickleOpcode opcode, Cursor& cursor) {
  ++cursor.at;
  const bool many = opcode == PickleOpcode::kSetItems || opcode == PickleOpcode::kAppends;
  const bool pairs = opcode == PickleOpcode::kSetItems || opcode == PickleOpcode::kSetItem;
  size_t first = 0;
  if (many) {
    first = PopMark().value_or(0);
  } else {
    const size_t items = pairs ? 2 : 1;
    first = top_ > items ? top_ - items : 0;
  }
  // Below the items lies the container, in front of the mark that encloses both.
  if (first == 0 || (!marks_.empty() && first - 1 < marks_.back())) {
    return FailWith("items without a container");
  }
  if (first == top_) return Next::kContinue;
  const Next next = pairs ? SetItems(first - 1, first, many) : AppendItems(first - 1, first, many);
  top_ = first;
  return next;
}

PickleReader::Next PickleReader::SetItems(size_t target, size_t first, bool at_once) {
  const PickleValue dict = stack_[target];
  const std::span<const PickleValue> pairs(stack_.data() + first, top_ - first);
  if (pairs.size() % 2 != 0) return FailWith("a dict with a key and no value");
  PickleValue result = dict;
  switch (dict.tag()) {
    case Tag::kOpenDict:
      result = at_once ? schema_->TakeDict(*this, pairs) : PickleValue();
      if (result.is(Tag::kUnset)) result = Hold(Tag::kDict, pairs);
      break;
    case Tag::kDict:
      HoldMore(dict, pairs);
      break;
    case Tag::kCustom:
      result = schema_->ExtendDict(*this, dict, pairs);
      break;
    case Tag::kObject:  // a class derived from dict
      break;
    default:
      return FailWith(Format("items set in {}, not in a dict", Describe(dict)));
  }
  if (failed()) return Next::kFailed;
  if (result != dict) Replace(target, result);
  return Next::kContinue;
}

PickleReader::Next PickleReader::AppendItems(size_t target, size_t first, bool at_once) {
  const PickleValue list = stack_[target];
  const std::span<PickleValue> items(stack_.data() + first, top_ - first);
  // A dict that was filled item by item is complete once it is put into a list.
  for (size_t i = 0; i < items.size() && items[0].is(Tag::kDict); ++i) items[i] = Resolve(items[i]);
  PickleValue result = list;
  switch (list.tag()) {
    case Tag::kOpenList:
      if (at_once) {
        result = schema_->TakeList(*this, items, static_cast<uint32_t>(list.number()));
      }
      if (!at_once || result.is(Tag::kUnset)) result = Hold(Tag::kList, items);
      break;
    case Tag::kList:
      HoldMore(list, items);
      break;
    case Tag::kCustom:
      result = schema_->ExtendList(*this, list, items);
      break;
    case Tag::kObject:  // a class derived from list
      break;
    default:
      return FailWith(Format("items appended to {}, not to a list", Describe(list)));
  }
  if (failed()) return Next::kFailed;
  if (result != list) Replace(target, result);
  return Next::kContinue;
}

PickleReader::Next PickleReader::StepBuild(PickleOpcode opcode, Cursor& cursor) {
  const size_t floor = marks_.empty() ? 0 : marks_.back();
  switch (opcode) {
    case PickleOpcode::kTuple:
    case PickleOpcode::kPopMark:
    case PickleOpcode::kList:
    case PickleOpcode::kDict: {
      const std::optional<size_t> first = PopMark();
      if (!first) return FailWith(Format("{} without MARK", PickleOpcodeName(uint8_t(opcode))));
      ++cursor.at;
      if (opcode == PickleOpcode::kTuple) return MakeTuple(*first);
      if (opcode == PickleOpcode::kList) return MakeFromMark(Tag::kOpenList, *first);
      if (opcode == PickleOpcode::kDict) return MakeFromMark(Tag::kOpenDict, *first);
      top_ = *first;
      return Next::kContinue;
    }
    case PickleOpcode::kTuple1:
    case PickleOpcode::kTuple2:
    case PickleOpcode::kTuple3: {
      const size_t items = uint8_t(opcode) - uint8_t(PickleOpcode::kTuple1) + size_t{1};
      if (top_ < floor + items) return FailWith("a tuple of more values than there are");
      ++cursor.at;
      return MakeTuple(top_ - items);
    }
    case PickleOpcode::kPop:
    case PickleOpcode::kDup:
      if (top_ <= floor) return FailWith("nothing on the stack");
      ++cursor.at;
      if (opcode == PickleOpcode::kPop) {
        --top_;
      } else {
        Push(stack_[top_ - 1]);
      }
      return Next::kContinue;
    default:
      if (objects_ == Objects::kAsData && IsObjectOpcode(opcode)) return StepObject(opcode, cursor);
      return Refuse(uint8_t(opcode), cursor);
  }
}

std::optional<size_t> PickleReader::PopMark() {
  if (marks_.empty()) return std::nullopt;
  const size_t first = marks_.back();
  marks_.pop_back();
  return first;
}

PickleReader::Next PickleReader::MakeTuple(size_t first) {
  const std::span<const PickleValue> items(stack_.data() + first, top_ - first);
  const auto is_small = [](PickleValue v) {
    return v.is(Tag::kInt) && v.integer() >= 0 && v.integer() < kLongestPairMember;
  };
  PickleValue tuple;
  if (items.size() == 2 && is_small(items[0]) && is_small(items[1])) {
    tuple = PickleValue::IntPair(static_cast<uint32_t>(items[0].integer()),
                                 static_cast<uint32_t>(items[1].integer()));
  } else if (items.empty()) {
    tuple = PickleValue::Of(Tag::kTuple, 0);
  } else {
    tuple = Hold(Tag::kTuple, items);
  }
  top_ = first;
  Push(tuple);
  return failed() ? Next::kFailed : Next::kContinue;
}

// LIST and DICT of protocol 0: the items since the mark, mostly none.
PickleReader::Next PickleReader::MakeFromMark(Tag open, size_t first) {
  const size_t items = top_ - first;
  Push(PickleValue());
  std::copy_backward(stack_.begin() + static_cast<ptrdiff_t>(first),
                     stack_.begin() + static_cast<ptrdiff_t>(first + items),
                     stack_.begin() + static_cast<ptrdiff_t>(first + items + 1));
  stack_[first] = PickleValue::Of(open, 0);
  Next next = Next::kContinue;
  if (items > 0) {
    next = open == Tag::kOpenList ? AppendItems(first, first + 1, true)
                                  : SetItems(first, first + 1, true);
  }
  top_ = first + 1;
  return next;
}

PickleValue PickleReader::Hold(Tag tag, std::span<const PickleValue> items) {
  containers_.emplace_back();
  const PickleValue container = PickleValue::Of(tag, containers_.size() - 1);
  HoldMore(container, items);
  return container;
}

void PickleReader::HoldMore(PickleValue container, std::span<const PickleValue> items) {
  Container& held = containers_[container.number()];
  if (held.resolved.is(Tag::kCustom)) {
    Fail("a container changes after it was used");
    return;
  }
  held.resolved = PickleValue();
  held.items.insert(held.items.end(), items.begin(), items.end());
  // An empty list and an item take three bytes of file at least, and some hundred here: real files
  // keep few containers at a time, so the file's size is a generous bound.
  held_items_ += items.size();
  constexpr uint64_t kContainerItems = 12;  // what a container costs beside its items
  if (held_items_ + kContainerItems * containers_.size() > kSlack * 8 + bytes_read() / 8) {
    Fail("more lists and dicts than a snapshot can have");
  }
}

PickleValue PickleReader::MakeList(std::span<const PickleValue> items) {
  return Hold(Tag::kList, items);
}

std::span<const PickleValue> PickleReader::Items(PickleValue container) const {
  switch (container.tag()) {
    case Tag::kTuple:
    case Tag::kList:
    case Tag::kDict:
    case Tag::kObject:
      return containers_[container.number()].items;
    default:
      return {};
  }
}

PickleValue PickleReader::Resolve(PickleValue value) {
  if (!value.is(Tag::kDict) && !value.is(Tag::kList)) return value;
  const size_t number = value.number();
  if (containers_[number].resolved.is(Tag::kCustom)) return containers_[number].resolved;
  if (containers_[number].resolved.is(Tag::kNone)) return value;
  if (resolving_ >= kMostNesting) {
    Fail(Format("nested deeper than {} levels", kMostNesting));
    return value;
  }
  ++resolving_;
  // The schema may add containers, which moves them: hold the items apart meanwhile.
  std::vector<PickleValue> items = std::move(containers_[number].items);
  containers_[number].items = {};
  const PickleValue taken =
      value.is(Tag::kDict) ? schema_->TakeDict(*this, items) : schema_->TakeList(*this, items, 0);
  --resolving_;
  if (taken.is(Tag::kUnset)) {
    containers_[number].items = std::move(items);
    containers_[number].resolved = PickleValue::None();
    return value;
  }
  held_items_ -= items.size();
  containers_[number].resolved = taken;
  return taken;
}

std::optional<uint64_t> PickleReader::AsUint64(PickleValue value) const {
  switch (value.tag()) {
    case Tag::kInt:
      return static_cast<uint64_t>(value.integer());
    case Tag::kBool:
      return value.number();
    case Tag::kWideInt:
      return wide_[value.number()];
    default:
      return std::nullopt;
  }
}

std::optional<double> PickleReader::AsFloat(PickleValue value) const {
  if (value.is(Tag::kFloat)) return floats_[value.number()];
  if (value.is(Tag::kInt)) return static_cast<double>(value.integer());
  return std::nullopt;
}

std::string_view PickleReader::Describe(PickleValue value) {
  switch (value.tag()) {
    case Tag::kNone:
      return "None";
    case Tag::kBool:
      return "a bool";
    case Tag::kInt:
    case Tag::kWideInt:
      return "an integer";
    case Tag::kFloat:
      return "a float";
    case Tag::kString:
      return "a string";
    case Tag::kIntPair:
    case Tag::kTuple:
      return "a tuple";
    case Tag::kList:
    case Tag::kOpenList:
      return "a list";
    case Tag::kDict:
    case Tag::kOpenDict:
      return "a dict";
    case Tag::kUnset:
    case Tag::kCustom:
      return "a part of a snapshot";
    case Tag::kGlobal:
    case Tag::kObject:
      return "an object";
  }
  return "a value";
}

}  // namespace headroom::observe
