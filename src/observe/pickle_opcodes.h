// SPDX-License-Identifier: Apache-2.0
//
// The opcodes of Python's pickle, protocols 0 to 5 (CPython 3.14, Lib/pickletools.py).
#pragma once

#include <cstdint>
#include <string_view>

namespace headroom::observe {

// Those that build plain values: all that a reader of data needs.
enum class PickleOpcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kFloatText = 'F',
  kIntText = 'I',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kLongText = 'L',
  kBinInt2 = 'M',
  kNone = 'N',
  kUnicodeText = 'V',
  kBinUnicode = 'X',
  kAppend = 'a',
  kDict = 'd',
  kEmptyDict = '}',
  kAppends = 'e',
  kGetText = 'g',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kList = 'l',
  kEmptyList = ']',
  kPutText = 'p',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kBinFloat = 'G',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kMemoize = 0x94,
  kFrame = 0x95,
  // They name what is to be imported and called. Never obeyed: refused, or read as names.
  kGlobal = 'c',
  kInst = 'i',
  kStackGlobal = 0x93,
  kReduce = 'R',
  kNewObj = 0x81,
  kNewObjEx = 0x92,
  kBuild = 'b',
  kBinPersId = 'Q',
};

// pickletools' name of an opcode ("REDUCE"); "" when no protocol has it.
std::string_view PickleOpcodeName(uint8_t opcode);

}  // namespace headroom::observe
