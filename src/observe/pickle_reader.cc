// SPDX-License-Identifier: Apache-2.0
#include "observe/pickle_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/format.h"

namespace headroom::observe {
namespace {

using Tag = PickleValue::Tag;

constexpr int kNewestProtocol = 5;
constexpr uint64_t kLeastStackLimit = uint64_t{1} << 20;
// Bytes of a snapshot per memo entry are about 68 (twenty-nine real files); reserving for more
// entries than come costs address space only.
constexpr uint64_t kBytesPerMemoEntry = 56;
constexpr uint64_t kMostReserved = uint64_t{1} << 26;

template <typename T>
T Load(const char* at) {
  static_assert(std::endian::native == std::endian::little, "pickles are little-endian");
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

uint8_t Byte(const char* at) { return static_cast<uint8_t>(*at); }

}  // namespace

PickleReader::PickleReader(ByteWindow* window, PickleSchema* schema, uint64_t expected_bytes,
                           Objects objects)
    : window_(window),
      schema_(schema),
      objects_(objects),
      stack_(4096),
      containers_(1),  // number 0 is the empty tuple
      instruction_(window->begin()) {
  memo_.Reserve(std::min(expected_bytes / kBytesPerMemoEntry, kMostReserved));
}

Result<PickleValue> PickleReader::Run() {
  Cursor cursor{window_->begin(), window_->end()};
  for (;;) {
    instruction_ = cursor.at;
    const Next next = Step(cursor);
    if (!status_.ok()) return status_.error();
    if (next == Next::kStop) return stack_[top_ - 1];
  }
}

void PickleReader::RunGets(Cursor& cursor) {
  const char* at = cursor.at;
  const size_t known = memo_.size();
  size_t top = top_;
  while (cursor.end - at >= 5 && top < stack_.size()) {
    const auto opcode = PickleOpcode(Byte(at));
    uint32_t index = 0;
    size_t length = 2;
    if (opcode == PickleOpcode::kBinGet) {
      index = Byte(at + 1);
    } else if (opcode == PickleOpcode::kLongBinGet) {
      index = Load<uint32_t>(at + 1);
      length = 5;
    } else {
      break;
    }
    if (index >= known) break;  // Step() says what is wrong
    const PickleValue value = memo_[index];
    if (value.is(Tag::kUnset)) break;
    stack_[top++] = value;
    at += length;
  }
  top_ = top;
  cursor.at = at;
}

PickleReader::Next PickleReader::Step(Cursor& cursor) {
  if (!Need(cursor, 1)) return Truncated();
  const auto opcode = PickleOpcode(Byte(cursor.at));
  switch (opcode) {
    case PickleOpcode::kBinGet:
    case PickleOpcode::kLongBinGet:
      RunGets(cursor);
      if (!Need(cursor, 1)) return Truncated();
      // What stopped the run is done here when it is a GET itself: at the window's edge, or wrong.
      return PickleOpcode(Byte(cursor.at)) == PickleOpcode::kBinGet ||
                     PickleOpcode(Byte(cursor.at)) == PickleOpcode::kLongBinGet
                 ? StepMemo(PickleOpcode(Byte(cursor.at)), cursor)
                 : Next::kContinue;
    case PickleOpcode::kMemoize:
      return StepMemo(opcode, cursor);
    case PickleOpcode::kBinInt1:
    case PickleOpcode::kBinInt:
    case PickleOpcode::kBinInt2:
    case PickleOpcode::kLong1:
      return StepInteger(opcode, cursor);
    case PickleOpcode::kShortBinUnicode:
    case PickleOpcode::kBinUnicode:
      return StepString(opcode, cursor);
    case PickleOpcode::kMark:
    case PickleOpcode::kEmptyDict:
    case PickleOpcode::kEmptyList:
      return StepOpen(opcode, cursor);
    case PickleOpcode::kSetItems:
    case PickleOpcode::kAppends:
      return StepFill(opcode, cursor);
    default:
      return StepRest(opcode, cursor);
  }
}

PickleReader::Next PickleReader::StepRest(PickleOpcode opcode, Cursor& cursor) {
  switch (opcode) {
    case PickleOpcode::kNone:
    case PickleOpcode::kNewTrue:
    case PickleOpcode::kNewFalse:
      Push(opcode == PickleOpcode::kNone ? PickleValue::None()
                                         : PickleValue::Bool(opcode == PickleOpcode::kNewTrue));
      ++cursor.at;
      return Next::kContinue;
    case PickleOpcode::kBinFloat: {
      if (!Need(cursor, 9)) return Truncated();
      // The one big-endian number in pickle.
      const uint64_t bits = __builtin_bswap64(Load<uint64_t>(cursor.at + 1));
      Push(PickleValue::Of(Tag::kFloat, floats_.size()));
      floats_.push_back(std::bit_cast<double>(bits));
      cursor.at += 9;
      return Next::kContinue;
    }
    case PickleOpcode::kProto:
      if (!Need(cursor, 2)) return Truncated();
      protocol_ = Byte(cursor.at + 1);
      if (protocol_ > kNewestProtocol) {
        return FailWith(Format("pickle protocol {} is not known here (0 to {} are)", protocol_,
                               kNewestProtocol));
      }
      cursor.at += 2;
      return Next::kContinue;
    case PickleOpcode::kFrame:  // a hint for readers that do not see the whole file
      if (!Need(cursor, 9)) return Truncated();
      cursor.at += 9;
      return Next::kContinue;
    case PickleOpcode::kStop:
      return top_ > 0 ? Next::kStop : FailWith("the pickle ends without a value");
    case PickleOpcode::kLong4:
      return StepInteger(opcode, cursor);
    case PickleOpcode::kBinUnicode8:
      return StepString(opcode, cursor);
    case PickleOpcode::kBinPut:
    case PickleOpcode::kLongBinPut:
      return StepMemo(opcode, cursor);
    case PickleOpcode::kIntText:
    case PickleOpcode::kLongText:
    case PickleOpcode::kFloatText:
    case PickleOpcode::kUnicodeText:
    case PickleOpcode::kGetText:
    case PickleOpcode::kPutText:
      return StepText(opcode, cursor);
    case PickleOpcode::kEmptyTuple:
      return StepOpen(opcode, cursor);
    case PickleOpcode::kSetItem:
    case PickleOpcode::kAppend:
      return StepFill(opcode, cursor);
    default:
      return StepBuild(opcode, cursor);
  }
}

PickleReader::Next PickleReader::StepInteger(PickleOpcode opcode, Cursor& cursor) {
  switch (opcode) {
    case PickleOpcode::kBinInt1:
      if (!Need(cursor, 2)) return Truncated();
      Push(PickleValue::Int(Byte(cursor.at + 1)));
      cursor.at += 2;
      return Next::kContinue;
    case PickleOpcode::kBinInt2:
      if (!Need(cursor, 3)) return Truncated();
      Push(PickleValue::Int(Load<uint16_t>(cursor.at + 1)));
      cursor.at += 3;
      return Next::kContinue;
    case PickleOpcode::kBinInt:
      if (!Need(cursor, 5)) return Truncated();
      Push(PickleValue::Int(Load<int32_t>(cursor.at + 1)));
      cursor.at += 5;
      return Next::kContinue;
    case PickleOpcode::kLong1:
      if (!Need(cursor, 2)) return Truncated();
      return PushLong(cursor, 2, Byte(cursor.at + 1));
    default:
      if (!Need(cursor, 5)) return Truncated();
      return PushLong(cursor, 5, Load<uint32_t>(cursor.at + 1));
  }
}

PickleReader::Next PickleReader::PushLong(Cursor& cursor, size_t header, uint64_t size) {
  if (size > kLongestInteger) {
    return FailWith(
        Format("an integer of {} bytes; the longest read here has {}", size, kLongestInteger));
  }
  if (!Need(cursor, header + size)) return Truncated();
  const char* digits = cursor.at + header;
  const bool negative = size > 0 && Byte(digits + size - 1) >= 0x80;
  uint64_t value = negative ? ~uint64_t{0} : 0;
  std::memcpy(&value, digits, std::min<size_t>(size, 8));
  // Nine bytes carry an unsigned 64-bit number (SIZE_MAX, a pointer): the ninth is its sign.
  if (size == kLongestInteger) {
    if (Byte(digits + 8) != 0) return FailWith("an integer of more than 64 bits");
    PushUint64(value);
  } else {
    PushInt64(static_cast<int64_t>(value));
  }
  cursor.at += header + size;
  return Next::kContinue;
}

PickleReader::Next PickleReader::StepString(PickleOpcode opcode, Cursor& cursor) {
  switch (opcode) {
    case PickleOpcode::kShortBinUnicode:
      if (!Need(cursor, 2)) return Truncated();
      return PushString(cursor, 2, Byte(cursor.at + 1));
    case PickleOpcode::kBinUnicode:
      if (!Need(cursor, 5)) return Truncated();
      return PushString(cursor, 5, Load<uint32_t>(cursor.at + 1));
    default:
      if (!Need(cursor, 9)) return Truncated();
      return PushString(cursor, 9, Load<uint64_t>(cursor.at + 1));
  }
}

PickleReader::Next PickleReader::PushString(Cursor& cursor, size_t header, uint64_t size) {
  if (size > kLongestString) {
    return FailWith(
        Format("a string of {} bytes; the longest read here has {}", size, kLongestString));
  }
  if (!Need(cursor, header + size)) return Truncated();
  if (strings_.full()) {
    return FailWith("more different strings than a snapshot can have");
  }
  Push(PickleValue::Of(Tag::kString,
                       static_cast<uint64_t>(strings_.Intern({cursor.at + header, size}))));
  cursor.at += header + size;
  return Next::kContinue;
}

PickleReader::Next PickleReader::StepMemo(PickleOpcode opcode, Cursor& cursor) {
  const bool is_long = opcode == PickleOpcode::kLongBinGet || opcode == PickleOpcode::kLongBinPut;
  const size_t length = opcode == PickleOpcode::kMemoize ? 1 : is_long ? 5 : 2;
  if (!Need(cursor, length)) return Truncated();
  uint64_t index = memo_.size();
  if (length == 5) index = Load<uint32_t>(cursor.at + 1);
  if (length == 2) index = Byte(cursor.at + 1);
  cursor.at += length;
  const bool get = opcode == PickleOpcode::kBinGet || opcode == PickleOpcode::kLongBinGet;
  return get ? Get(index) : Memoize(index);
}

bool PickleReader::Refill(Cursor& cursor, size_t bytes) {
  const bool enough = window_->Need(&cursor.at, bytes);
  cursor.end = window_->end();
  instruction_ = cursor.at;  // the window may have moved
  return enough;
}

PickleReader::Next PickleReader::Truncated() {
  if (!window_->status().ok()) {
    status_ = window_->status();
    return Next::kFailed;
  }
  const uint64_t size = window_->OffsetOf(window_->end());
  status_ = Error::BadInput(
      Format("the pickle ends after {} bytes, before its last instruction: truncated?", size));
  return Next::kFailed;
}

PickleReader::Next PickleReader::FailWith(std::string_view message) {
  Fail(message);
  return Next::kFailed;
}

void PickleReader::Fail(std::string_view message) {
  if (!status_.ok()) return;
  status_ = Error::BadInput(
      Format("{} (at byte {}): not opened", message, window_->OffsetOf(instruction_)));
}

// A value on the stack takes eight bytes here and may take one in the file. C++ pickles hold a
// whole trace there, at some hundred bytes of file a value.
void PickleReader::GrowStack() {
  if (stack_.size() > kLeastStackLimit + bytes_read() / 16) {
    Fail("more values at once than a snapshot can have");
  }
  stack_.resize(stack_.size() * 2);
}

void PickleReader::PushUint64(uint64_t value) {
  if (value <= uint64_t{INT64_MAX} && PickleValue::FitsInt(static_cast<int64_t>(value))) {
    Push(PickleValue::Int(static_cast<int64_t>(value)));
    return;
  }
  Push(PickleValue::Of(Tag::kWideInt, wide_.size()));
  wide_.push_back(value);
}

void PickleReader::PushInt64(int64_t value) {
  if (PickleValue::FitsInt(value)) {
    Push(PickleValue::Int(value));
  } else {
    Push(PickleValue::Of(Tag::kWideInt, wide_.size()));
    wide_.push_back(static_cast<uint64_t>(value));
  }
}

}  // namespace headroom::observe
