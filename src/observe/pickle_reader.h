// SPDX-License-Identifier: Apache-2.0
//
// PickleReader: a pickle read as data, never executed.
//
// Pickle is a program for a stack machine. This machine knows the instructions that build numbers,
// strings, lists, tuples and dicts, and refuses the others by name and place: nothing can be
// imported or called. Containers are offered to a PickleSchema while their items are still on the
// stack; what it recognises (an event of a snapshot) goes into its own tables and a number takes
// the container's place, so a file of 1 GB never becomes a tree.
//
//   ] MEMOIZE ( BINGET BINGET BINGET APPENDS      -> schema.TakeList(three frames) = stack 17
//   } MEMOIZE ( "action" "alloc" "size" 512 … u   -> schema.TakeDict(pairs)        = event 4,711
//
// Containers the schema does not recognise, and those filled item by item (protocol 0), are kept as
// plain lists of values. Memory is bounded by a multiple of the bytes read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "observe/byte_window.h"
#include "observe/memo_table.h"
#include "observe/pickle_list_cache.h"
#include "observe/pickle_opcodes.h"
#include "observe/pickle_value.h"
#include "observe/string_table.h"

namespace headroom::observe {

class PickleReader;

class PickleSchema {
 public:
  virtual ~PickleSchema() = default;
  // A dict received its first items: keys and values alternate. Returns the kCustom value that
  // stands for it, or kUnset to have it kept as it is. May call reader.Fail().
  virtual PickleValue TakeDict(PickleReader& reader, std::span<const PickleValue> pairs) = 0;
  // A list received its first items. `memo` is to be handed back by MemoOf(result).
  virtual PickleValue TakeList(PickleReader& reader, std::span<PickleValue> items,
                               uint32_t memo) = 0;
  // More items for a container that Take… recognised. Returns the value that stands for it now.
  virtual PickleValue ExtendDict(PickleReader& reader, PickleValue dict,
                                 std::span<const PickleValue> pairs) = 0;
  virtual PickleValue ExtendList(PickleReader& reader, PickleValue list,
                                 std::span<PickleValue> items) = 0;
  // The `memo` that TakeList was given for this value; 0 when its number never changes.
  virtual uint32_t MemoOf(PickleValue list) const = 0;
  // A list equal to this one under another memo entry; kUnset when equal lists are not one value.
  virtual PickleValue WithMemo(PickleValue list, uint32_t memo) const = 0;
};

class PickleReader {
 public:
  // What becomes of instructions that import and call.
  enum class Objects : uint8_t {
    kRefuse,
    kAsData,  // kept as names, arguments and states; still nothing is imported or called
  };

  // `expected_bytes` (the file's size where it is known) sizes the tables.
  PickleReader(ByteWindow* window, PickleSchema* schema, uint64_t expected_bytes,
               Objects objects = Objects::kRefuse);

  // Runs to STOP; what then tops the stack. Anything may follow STOP.
  Result<PickleValue> Run();

  // ---- For schemas, and for looking at the result ----

  StringTable& strings() { return strings_; }
  // Items of a kList, kTuple or kDict (keys and values alternate), parts of a kObject; empty for an
  // open one.
  std::span<const PickleValue> Items(PickleValue container) const;
  // A container that was filled item by item, offered to the schema now that it is complete: the
  // custom value that stands for it, or `value` as it was.
  PickleValue Resolve(PickleValue value);
  // A plain list of these items.
  PickleValue MakeList(std::span<const PickleValue> items);
  // Integers and bools, negative ones as two's complement.
  std::optional<uint64_t> AsUint64(PickleValue value) const;
  std::optional<double> AsFloat(PickleValue value) const;
  // What a human calls the value: "an integer", "a list".
  static std::string_view Describe(PickleValue value);

  uint64_t bytes_read() const { return window_->OffsetOf(instruction_); }
  int protocol() const { return protocol_; }
  // Makes Run return this error, with the byte offset, as soon as the schema returns.
  void Fail(std::string_view message);
  bool failed() const { return !status_.ok(); }
  const Status& status() const { return status_; }

  static constexpr size_t kMostNesting = 64;
  static constexpr size_t kLongestString = size_t{1} << 20;
  static constexpr size_t kLongestInteger = 9;  // bytes: 64 bits and a sign

 private:
  struct Container {
    std::vector<PickleValue> items;
    // What the schema took it for; kUnset: not asked yet, kNone: asked and not recognised.
    PickleValue resolved;
  };
  // `at` stays on an instruction's first byte until the instruction is done.
  struct Cursor {
    const char* at;
    const char* end;
  };
  enum class Next { kContinue, kStop, kFailed };

  // Runs of GET, three quarters of a snapshot, in a loop of their own.
  void RunGets(Cursor& cursor);
  Next Step(Cursor& cursor);
  Next StepInteger(PickleOpcode opcode, Cursor& cursor);
  Next StepString(PickleOpcode opcode, Cursor& cursor);
  Next StepMemo(PickleOpcode opcode, Cursor& cursor);
  Next StepOpen(PickleOpcode opcode, Cursor& cursor);
  // A list of GETs alone, from its first to its APPENDS; anything else is left to the other steps.
  Next StepListOfGets(Cursor& cursor);
  Next StepFill(PickleOpcode opcode, Cursor& cursor);
  Next StepBuild(PickleOpcode opcode, Cursor& cursor);
  Next StepText(PickleOpcode opcode, Cursor& cursor);
  Next StepRest(PickleOpcode opcode, Cursor& cursor);
  static bool IsObjectOpcode(PickleOpcode opcode);
  Next StepObject(PickleOpcode opcode, Cursor& cursor);
  Next PushGlobal(Cursor& cursor);
  PickleValue NameOf(std::string_view module, std::string_view name);
  Next Refuse(uint8_t opcode, Cursor& cursor);
  Next RefuseImport(std::string_view module, std::string_view name);
  Next FailWith(std::string_view message);
  Next Truncated();

  bool Need(Cursor& cursor, size_t bytes) {
    if (static_cast<size_t>(cursor.end - cursor.at) >= bytes) [[likely]]
      return true;
    return Refill(cursor, bytes);
  }
  bool Refill(Cursor& cursor, size_t bytes);
  Next PushString(Cursor& cursor, size_t header, uint64_t size);
  Next PushLong(Cursor& cursor, size_t header, uint64_t size);
  bool PushIntegerText(std::string_view text);
  // The text between the opcode and the newline.
  std::optional<std::string_view> Line(Cursor& cursor, size_t longest);

  void Push(PickleValue value) {
    if (top_ == stack_.size()) [[unlikely]]
      GrowStack();
    stack_[top_++] = value;
  }
  void GrowStack();
  void PushUint64(uint64_t value);
  void PushInt64(int64_t value);
  // Position of the first value above the last MARK.
  std::optional<size_t> PopMark();
  Next Memoize(uint64_t index);
  Next Get(uint64_t index);
  void Replace(size_t position, PickleValue value);
  // The values from `first` up become items of the container below them, `target`.
  Next SetItems(size_t target, size_t first, bool at_once);
  Next AppendItems(size_t target, size_t first, bool at_once);
  Next MakeTuple(size_t first);
  Next MakeFromMark(PickleValue::Tag open, size_t first);
  PickleValue Hold(PickleValue::Tag tag, std::span<const PickleValue> items);
  void HoldMore(PickleValue container, std::span<const PickleValue> items);

  ByteWindow* window_;
  PickleSchema* schema_;
  const Objects objects_;
  StringTable strings_;
  std::vector<PickleValue> stack_;  // valid below top_
  size_t top_ = 0;
  std::vector<size_t> marks_;
  ListCache lists_;
  MemoTable memo_;
  std::vector<Container> containers_;
  size_t held_items_ = 0;  // in containers_
  size_t resolving_ = 0;   // depth of Resolve
  std::vector<uint64_t> wide_;
  std::vector<double> floats_;
  const char* instruction_ = nullptr;  // the one being executed, for error messages
  int protocol_ = 0;
  Status status_;
};

}  // namespace headroom::observe
