// SPDX-License-Identifier: Apache-2.0
//
// The part of PickleReader that meets what a pickle would import and call: refused by its name, or
// read as data: a name, arguments and a state, never made.
#include <algorithm>
#include <string>
#include <string_view>

#include "base/format.h"
#include "observe/pickle_reader.h"

namespace headroom::observe {
namespace {

using Tag = PickleValue::Tag;

constexpr size_t kLongestName = 1024;
constexpr size_t kLongestRefused = 200;

}  // namespace

bool PickleReader::IsObjectOpcode(PickleOpcode opcode) {
  switch (opcode) {
    case PickleOpcode::kGlobal:
    case PickleOpcode::kStackGlobal:
    case PickleOpcode::kReduce:
    case PickleOpcode::kNewObj:
    case PickleOpcode::kNewObjEx:
    case PickleOpcode::kBuild:
    case PickleOpcode::kBinPersId:
      return true;
    default:
      return false;
  }
}

PickleReader::Next PickleReader::StepObject(PickleOpcode opcode, Cursor& cursor) {
  if (opcode == PickleOpcode::kGlobal) return PushGlobal(cursor);
  const size_t floor = marks_.empty() ? 0 : marks_.back();
  const size_t taken = opcode == PickleOpcode::kNewObjEx    ? 3
                       : opcode == PickleOpcode::kBinPersId ? 1
                                                            : 2;
  if (top_ < floor + taken) return FailWith("an object of more parts than there are");
  ++cursor.at;
  const std::span<PickleValue> parts(stack_.data() + top_ - taken, taken);
  PickleValue result = PickleValue::None();  // for BINPERSID: what it stands for is elsewhere
  switch (opcode) {
    case PickleOpcode::kStackGlobal: {
      if (!parts[0].is(Tag::kString) || !parts[1].is(Tag::kString)) {
        return FailWith("a name that is no text");
      }
      result = NameOf(strings_.Get(StringId(parts[0].number())),
                      strings_.Get(StringId(parts[1].number())));
      break;
    }
    case PickleOpcode::kBuild:
      // The state is kept as one more part. What is no object has no use for it.
      if (parts[0].is(Tag::kObject)) HoldMore(parts[0], parts.subspan(1));
      result = parts[0];
      break;
    case PickleOpcode::kBinPersId:
      break;
    default:
      result = Hold(Tag::kObject, parts);
  }
  top_ -= taken;
  Push(result);
  return failed() ? Next::kFailed : Next::kContinue;
}

PickleValue PickleReader::NameOf(std::string_view module, std::string_view name) {
  if (strings_.full()) {
    Fail("more different strings than a file can have");
    return {};
  }
  const std::string full =
      std::string(module.substr(0, kLongestName)) + "." + std::string(name.substr(0, kLongestName));
  return PickleValue::Of(Tag::kGlobal, static_cast<uint64_t>(strings_.Intern(full)));
}

// GLOBAL: the module on one line, the name on the next.
PickleReader::Next PickleReader::PushGlobal(Cursor& cursor) {
  const std::optional<std::string_view> module = Line(cursor, kLongestName);
  if (!module) return FailWith("a name without an end");
  const std::string first(*module);
  const size_t length = first.size() + 2;
  size_t seen = length;
  for (;;) {
    if (!Need(cursor, seen + 1)) return Truncated();
    const std::string_view text(cursor.at, static_cast<size_t>(cursor.end - cursor.at));
    const size_t newline = text.substr(0, length + kLongestName).find('\n', length);
    if (newline != std::string_view::npos) {
      Push(NameOf(first, text.substr(length, newline - length)));
      cursor.at += newline + 1;
      return failed() ? Next::kFailed : Next::kContinue;
    }
    if (text.size() >= length + kLongestName) return FailWith("a name without an end");
    seen = text.size();
  }
}

PickleReader::Next PickleReader::Refuse(uint8_t opcode, Cursor& cursor) {
  if (PickleOpcode(opcode) == PickleOpcode::kGlobal ||
      PickleOpcode(opcode) == PickleOpcode::kInst) {
    const std::optional<std::string_view> module = Line(cursor, kLongestRefused);
    if (!module) return RefuseImport("a name", "without an end");
    const size_t length = module->size() + 2;
    const std::string text(*module);
    if (!Need(cursor, length + 1)) return RefuseImport(text, "");
    const std::string_view rest(
        cursor.at + length,
        std::min<size_t>(static_cast<size_t>(cursor.end - cursor.at) - length, kLongestRefused));
    return RefuseImport(text, rest.substr(0, rest.find('\n')));
  }
  if (PickleOpcode(opcode) == PickleOpcode::kStackGlobal) {
    const auto name = [&](size_t from_top) -> std::string_view {
      if (top_ < from_top || !stack_[top_ - from_top].is(Tag::kString)) return "?";
      return strings_.Get(StringId(stack_[top_ - from_top].number())).substr(0, kLongestRefused);
    };
    return RefuseImport(name(2), name(1));
  }
  const std::string_view name = PickleOpcodeName(opcode);
  if (name.empty()) return FailWith(Format("no pickle: byte 0x{:02x} is no instruction", opcode));
  return FailWith(Format("the instruction {} has no place in a memory snapshot", name));
}

PickleReader::Next PickleReader::RefuseImport(std::string_view module, std::string_view name) {
  std::string what = MakePrintable(Format("{}.{}", module, name));
  std::replace(what.begin(), what.end(), '\n', ' ');
  return FailWith(Format("this file wants to import {}", what));
}

}  // namespace headroom::observe
