// SPDX-License-Identifier: Apache-2.0
//
// The part of PickleReader that reads instructions with a line of text: those of protocol 0.
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "base/format.h"
#include "observe/pickle_reader.h"

namespace headroom::observe {
namespace {

using Tag = PickleValue::Tag;

constexpr size_t kLongestNumberText = 64;

template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

void AppendUtf8(uint32_t point, std::string* out) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (point >> shift & 0x3f)); };
  if (point < 0x80) {
    out->push_back(static_cast<char>(point));
  } else if (point < 0x800) {
    *out += {static_cast<char>(0xc0 | point >> 6), tail(0)};
  } else if (point < 0x10000) {
    *out += {static_cast<char>(0xe0 | point >> 12), tail(6), tail(0)};
  } else {
    *out += {static_cast<char>(0xf0 | (point >> 18 & 7)), tail(12), tail(6), tail(0)};
  }
}

// Python's raw-unicode-escape, how protocol 0 writes text: Latin-1, \\uXXXX and \\UXXXXXXXX.
std::string RawUnicodeUnescape(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t digits = text.substr(at).starts_with("\\u")   ? 4
                          : text.substr(at).starts_with("\\U") ? 8
                                                               : 0;
    uint32_t point = static_cast<uint8_t>(text[at]);
    if (digits > 0 && at + 2 + digits <= text.size()) {
      const char* first = text.data() + at + 2;
      uint32_t escaped = 0;
      if (std::from_chars(first, first + digits, escaped, 16).ptr == first + digits) {
        point = escaped;
        at += 1 + digits;
      }
    }
    AppendUtf8(point, &out);
  }
  return out;
}

}  // namespace

PickleReader::Next PickleReader::StepText(PickleOpcode opcode, Cursor& cursor) {
  const bool is_string = opcode == PickleOpcode::kUnicodeText;
  const std::optional<std::string_view> line =
      Line(cursor, is_string ? kLongestString : kLongestNumberText);
  if (!line) {
    return window_->status().ok() && cursor.at == cursor.end
               ? Truncated()
               : FailWith(Format("{} without an end", PickleOpcodeName(uint8_t(opcode))));
  }
  switch (opcode) {
    case PickleOpcode::kUnicodeText: {
      if (strings_.full()) return FailWith("more different strings than a snapshot can have");
      const StringId id = strings_.Intern(RawUnicodeUnescape(*line));
      Push(PickleValue::Of(Tag::kString, static_cast<uint64_t>(id)));
      break;
    }
    case PickleOpcode::kFloatText: {
      const std::optional<double> number = ParseNumber<double>(*line);
      if (!number) return FailWith("FLOAT without a number");
      Push(PickleValue::Of(Tag::kFloat, floats_.size()));
      floats_.push_back(*number);
      break;
    }
    case PickleOpcode::kGetText:
    case PickleOpcode::kPutText: {
      const std::optional<uint64_t> index = ParseNumber<uint64_t>(*line);
      if (!index) return FailWith("a memo entry without a number");
      const Next next = opcode == PickleOpcode::kGetText ? Get(*index) : Memoize(*index);
      if (next != Next::kContinue) return next;
      break;
    }
    default:
      if (!PushIntegerText(*line)) return FailWith("INT without a number of at most 64 bits");
  }
  cursor.at = line->data() + line->size() + 1;
  return Next::kContinue;
}

// "I01" and "I00" are how protocol 0 writes True and False; "L…L" is an integer of any size.
bool PickleReader::PushIntegerText(std::string_view text) {
  if (text == "00" || text == "01") {
    Push(PickleValue::Bool(text == "01"));
    return true;
  }
  if (text.ends_with('L')) text.remove_suffix(1);
  if (const std::optional<int64_t> number = ParseNumber<int64_t>(text)) {
    PushInt64(*number);
    return true;
  }
  const std::optional<uint64_t> number = ParseNumber<uint64_t>(text);
  if (number) PushUint64(*number);
  return number.has_value();
}

std::optional<std::string_view> PickleReader::Line(Cursor& cursor, size_t longest) {
  size_t seen = 1;  // the opcode
  while (Need(cursor, seen + 1)) {
    const std::string_view text(cursor.at, static_cast<size_t>(cursor.end - cursor.at));
    const size_t newline = text.substr(0, longest + 2).find('\n', seen);
    if (newline != std::string_view::npos) return text.substr(1, newline - 1);
    if (text.size() > longest + 1) {
      return std::nullopt;
    }
    seen = text.size();
  }
  cursor.at = cursor.end;
  return std::nullopt;
}

}  // namespace headroom::observe
