// SPDX-License-Identifier: Apache-2.0
#include "observe/pickle_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace headroom::observe {
namespace {

using ::testing::HasSubstr;
using Tag = PickleValue::Tag;

// Recognises nothing: every container stays a plain one.
class NoSchema : public PickleSchema {
 public:
  PickleValue TakeDict(PickleReader&, std::span<const PickleValue>) override { return {}; }
  PickleValue TakeList(PickleReader&, std::span<PickleValue>, uint32_t) override { return {}; }
  PickleValue ExtendDict(PickleReader&, PickleValue dict, std::span<const PickleValue>) override {
    return dict;
  }
  PickleValue ExtendList(PickleReader&, PickleValue list, std::span<PickleValue>) override {
    return list;
  }
  uint32_t MemoOf(PickleValue) const override { return 0; }
  PickleValue WithMemo(PickleValue, uint32_t) const override { return {}; }
};

// A pickle and what reading it gave, kept together so that values can be looked up.
struct Reading {
  explicit Reading(std::string text)
      : bytes(std::move(text)),
        window(bytes),
        reader(&window, &schema, bytes.size()),
        result(reader.Run()) {}

  std::string error() const { return result.ok() ? "" : result.error().message; }
  PickleValue value() const { return *result; }
  std::string Text(PickleValue v) {
    return v.is(Tag::kString) ? std::string(reader.strings().Get(StringId(v.number()))) : "?";
  }

  std::string bytes;
  ByteWindow window;
  NoSchema schema;
  PickleReader reader;
  Result<PickleValue> result;
};

std::string Bytes8(uint64_t value) {
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(value >> 8 * i));
  return out;
}

TEST(PickleReader, ReadsIntegersOfEveryWidth) {
  const struct {
    std::string pickle;
    uint64_t expected;
  } cases[] = {
      {std::string("K\xff.", 3), 255},
      {std::string("M\xff\xff.", 4), 65535},
      {std::string("J\xfe\xff\xff\xff.", 6), static_cast<uint64_t>(-2)},
      {std::string("\x8a\x00.", 3), 0},
      {std::string("\x8a\x01\x80.", 4), static_cast<uint64_t>(-128)},
      {std::string("\x8a\x07\xd2\x02\x96\x49\x00\x00\x7f.", 10), 0x7f000049'9602d2},
      {"\x8a\x08" + Bytes8(1ULL << 63) + ".", 1ULL << 63},
      {"\x8a\x09" + Bytes8(~0ULL) + std::string("\0.", 2), ~0ULL},
      {std::string("\x8b\x02\x00\x00\x00\x00\x80.", 8), static_cast<uint64_t>(-32768)},
      {"I-7\n.", static_cast<uint64_t>(-7)},
      {"I01\n.", 1},
      {"L18446744073709551615L\n.", ~0ULL},
  };
  for (const auto& c : cases) {
    Reading reading(c.pickle);
    ASSERT_EQ(reading.error(), "") << testing::PrintToString(c.pickle);
    EXPECT_EQ(reading.reader.AsUint64(reading.value()), c.expected);
  }
}

TEST(PickleReader, RefusesIntegersOfMoreThan64Bits) {
  EXPECT_THAT(Reading("\x8a\x09" + Bytes8(0) + "\x01.").error(), HasSubstr("more than 64 bits"));
  EXPECT_THAT(Reading("\x8a\x0a" + Bytes8(0) + "  .").error(), HasSubstr("integer of 10 bytes"));
  EXPECT_THAT(Reading(std::string("\x8b\xff\xff\xff\xff.", 6)).error(), HasSubstr("4294967295"));
  EXPECT_THAT(Reading("L99999999999999999999L\n.").error(), HasSubstr("64 bits"));
}

TEST(PickleReader, ReadsStringsAndMakesThemPrintable) {
  Reading plain("\x8c\x05hello.");
  EXPECT_EQ(plain.Text(plain.value()), "hello");
  Reading raw("V\\u00e9\\u2713 caf\xe9\n.");
  EXPECT_EQ(raw.Text(raw.value()), "\xc3\xa9\xe2\x9c\x93 caf\xc3\xa9");
  Reading hostile(
      std::string("X\x0c\x00\x00\x00"
                  "a\x1b[2Jb\xed\xa0\x80"
                  "cde.",
                  18));
  EXPECT_EQ(hostile.Text(hostile.value()),
            "a\xef\xbf\xbd[2Jb\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
            "cde");
}

TEST(PickleReader, ReadsFloatsBoolsAndNone) {
  Reading big(std::string("G\x3f\xe0\x00\x00\x00\x00\x00\x00.", 10));
  EXPECT_EQ(big.reader.AsFloat(big.value()), 0.5);
  Reading text("F0.25\n.");
  EXPECT_EQ(text.reader.AsFloat(text.value()), 0.25);
  EXPECT_TRUE(Reading("N.").value().is(Tag::kNone));
  EXPECT_EQ(Reading("\x88.").value(), PickleValue::Bool(true));
}

TEST(PickleReader, SharesContainersThroughTheMemo) {
  // [x, x] with x = {"k": 1}, the way protocol 4 writes it.
  Reading reading(
      "]\x94(}\x94(\x8c\x01k\x94K\x01uh\x01"
      "e.");
  ASSERT_EQ(reading.error(), "");
  const auto items = reading.reader.Items(reading.value());
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(items[0], items[1]);
  const auto pairs = reading.reader.Items(items[0]);
  ASSERT_EQ(pairs.size(), 2U);
  EXPECT_EQ(reading.Text(pairs[0]), "k");
}

TEST(PickleReader, KeepsSmallPairsInTheValue) {
  Reading reading("K\x03K\x07\x86.");
  ASSERT_TRUE(reading.value().is(Tag::kIntPair));
  EXPECT_EQ(reading.value().first(), 3U);
  EXPECT_EQ(reading.value().second(), 7U);
}

TEST(PickleReader, NamesWhatAFileWantsToImport) {
  EXPECT_EQ(Reading("\x80\x04"
                    "cos\nsystem\n(S'ls'\ntR.")
                .error(),
            "this file wants to import os.system (at byte 2): not opened");
  EXPECT_EQ(Reading("\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93.").error(),
            "this file wants to import os.system (at byte 16): not opened");
  EXPECT_EQ(Reading("(iposix\nsystem\n.").error(),
            "this file wants to import posix.system (at byte 1): not opened");
}

TEST(PickleReader, RefusesEveryOtherInstructionByName) {
  const std::string allowed =
      "(.012FIJKLMNVXadeghjlpqrstuG}])\x80\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x94\x95";
  for (int opcode = 0; opcode < 256; ++opcode) {
    if (allowed.find(static_cast<char>(opcode)) != std::string::npos) continue;
    Reading reading(std::string("K\x01K\x02") + static_cast<char>(opcode) + "a\nb\n.");
    EXPECT_THAT(reading.error(), HasSubstr("(at byte 4): not opened")) << opcode;
  }
  EXPECT_THAT(Reading("K\x01R.").error(), HasSubstr("REDUCE"));
  EXPECT_THAT(Reading("K\x01\x96.").error(), HasSubstr("BYTEARRAY8"));
  EXPECT_THAT(Reading("\x80\x06.").error(), HasSubstr("protocol 6"));
}

TEST(PickleReader, FailsOnEveryTruncation) {
  const std::string whole =
      "\x80\x04\x95\x30\x00\x00\x00\x00\x00\x00\x00" +
      std::string("]\x94(K\x01M\x02\x00J\x03\x00\x00\x00", 13) + "\x8c\x02hi\x94h\x01" +
      std::string("G\x3f\xe0\x00\x00\x00\x00\x00\x00", 9) + "I12\n)\x88N" + "e.";
  const std::string text("\x80\x04\x95\x30\x00\x00\x00\x00\x00\x00\x00", 11);
  const std::string pickle = text + whole.substr(whole.find(']'));
  ASSERT_EQ(Reading(pickle).error(), "");
  for (size_t length = 0; length < pickle.size(); ++length) {
    EXPECT_THAT(Reading(pickle.substr(0, length)).error(), HasSubstr("truncated?")) << length;
  }
}

TEST(PickleReader, RefusesWhatTheStackDoesNotHold) {
  for (const char* pickle :
       {".", "u.", "e.", "a.", "s.", "t.", "0.", "2.", "1.", "\x85.", "K\x01K\x02u.",
        "K\x01(K\x02"
        "e.",
        "](K\x01s.", "}(K\x01u.", "\x94.", "(]\x94K\x01.a"}) {
    Reading reading{std::string(pickle)};
    if (std::string(pickle) == "(]\x94K\x01.a") {
      EXPECT_TRUE(reading.result.ok());  // what is left on the stack is nobody's business
    } else {
      EXPECT_FALSE(reading.result.ok()) << pickle;
    }
  }
  EXPECT_THAT(Reading("h\x07.").error(), HasSubstr("memo entry 7 is read before"));
}

TEST(PickleReader, BoundsNestingMemoAndStrings) {
  EXPECT_THAT(Reading(std::string(100, '(')).error(), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(Reading(std::string("]r\xff\xff\xff\x7f.", 7)).error(), HasSubstr("far beyond"));
  EXPECT_THAT(Reading(std::string("X\xff\xff\xff\x7f", 5)).error(),
              HasSubstr("a string of 2147483647 bytes"));
  EXPECT_THAT(Reading("\x8d" + Bytes8(~0ULL)).error(), HasSubstr("a string of"));
  EXPECT_THAT(Reading(std::string(std::size_t{1} << 22, 'N')).error(),
              HasSubstr("more values at once"));
}

TEST(PickleReader, BoundsContainers) {
  // ] ] ] … a a a: a chain as deep as the file is long must neither recurse nor run away.
  const size_t depth = 200'000;
  Reading chain(std::string(depth, ']') + std::string(depth - 1, 'a') + ".");
  EXPECT_EQ(chain.error(), "");
  // Dicts of one item each, five bytes apiece.
  std::string many = "](";
  for (int i = 0; i < 900'000; ++i) many += "}NNs";
  EXPECT_THAT(Reading(many + "e.").error(), HasSubstr("more lists and dicts"));
}

TEST(PickleReader, FindsTheErrorAtItsPlaceBehindTheWindow) {
  // Five MiB of harmless values that come in pieces, and then an import.
  class Pieces final : public ByteSource {
   public:
    Result<size_t> Read(char* out, size_t size) override {
      const std::string_view text = given_ < 5'000'000 ? "N0" : "cos\nsystem\n";
      const size_t count = std::min(size, text.size());
      text.copy(out, count);
      given_ += count;
      return count;
    }

   private:
    size_t given_ = 0;
  };
  ByteWindow window(std::make_unique<Pieces>());
  NoSchema schema;
  PickleReader reader(&window, &schema, 0);
  EXPECT_EQ(reader.Run().error().message,
            "this file wants to import os.system (at byte 5000000): not opened");
}

TEST(PickleReader, HoldsContainersThatContainThemselves) {
  // x = []; x.append(x): harmless as data, and no loop.
  const std::string zero(1, '\0');
  EXPECT_EQ(Reading("]\x94(h" + zero + "e.").error(), "");
  EXPECT_EQ(Reading("]\x94K\x01"
                    "ah" +
                    zero + "a.")
                .error(),
            "");
}

}  // namespace
}  // namespace headroom::observe
