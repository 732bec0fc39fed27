// SPDX-License-Identifier: Apache-2.0
#include "engine/data/unicode.h"

#include <gtest/gtest.h>

namespace headroom::engine {
namespace {

TEST(Utf8, ReplacesEachLongestPieceThatIsNoCharacter) {
  // The examples of Unicode 15, section 3.9, table 3-8 and those around it.
  EXPECT_EQ(ToValidUtf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(ToValidUtf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(ToValidUtf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(ToValidUtf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(ToValidUtf8("caf\xC3"), "caf\uFFFD");
  EXPECT_EQ(ToValidUtf8("é 😀"), "é 😀");
}

TEST(Utf8, KnowsWhatIsValid) {
  EXPECT_TRUE(IsValidUtf8(""));
  EXPECT_TRUE(IsValidUtf8("é 😀 \U0010FFFF"));
  EXPECT_FALSE(IsValidUtf8("\x80"));
  EXPECT_FALSE(IsValidUtf8("\xC3"));
}

TEST(Utf8, ReadsWhatItWrote) {
  for (char32_t code = 0; code < 0x110000; code += code < 0x3000 ? 1 : 251) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    AppendUtf8(code, text);
    EXPECT_TRUE(IsValidUtf8(text));
    size_t at = 0;
    EXPECT_EQ(NextCodePoint(text, at), code);
    EXPECT_EQ(at, text.size());
  }
}

TEST(Characters, HaveTheClassesOfTheTokenizersLibrary) {
  for (const char32_t code :
       {0x9U, 0xBU, 0x20U, 0x85U, 0xA0U, 0x1680U, 0x200AU, 0x2028U, 0x3000U}) {
    EXPECT_TRUE(IsWhitespace(code)) << std::hex << static_cast<uint32_t>(code);
  }
  for (const char32_t code : {0x8U, 0x1FU, 0x41U, 0x180EU, 0x200BU, 0xFEFFU}) {
    EXPECT_FALSE(IsWhitespace(code)) << std::hex << static_cast<uint32_t>(code);
  }
  EXPECT_TRUE(IsControl(0x7F) && IsControl(0x200D) && IsControl(0xE000) && IsControl(0xAD));
  EXPECT_FALSE(IsControl('\n') || IsControl(0x378) || IsControl('a'));
  EXPECT_TRUE(IsPunctuation('$') && IsPunctuation('`') && IsPunctuation(0xA1) &&
              IsPunctuation(0x2014) && IsPunctuation('_'));
  EXPECT_FALSE(IsPunctuation(0xA3) || IsPunctuation('a') || IsPunctuation(0xB4));
  EXPECT_TRUE(IsNumeric('7') && IsNumeric(0x664) && IsNumeric(0x2163) && IsNumeric(0xBD));
  EXPECT_TRUE(IsChinese(0x4E00) && IsChinese(0x20000) && !IsChinese(0x3042) && !IsChinese(0xAC00));
}

TEST(Characters, LowerOneByOne) {
  EXPECT_EQ(ToLower("ÀÉÎ Σ ẞ Ǆ"), "àéî σ ß ǆ");
  EXPECT_EQ(ToLower("İI"), "i\u0307i");
}

TEST(NormalForms, ComposeAndDecompose) {
  EXPECT_EQ(Normalized("é", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(Normalized("e\u0301", NormalForm::kNfc), "é");
  EXPECT_EQ(Normalized("ﬁ²", NormalForm::kNfkc), "fi2");
  EXPECT_EQ(Normalized("각", NormalForm::kNfkd), "\u1100\u1161\u11A8");
  EXPECT_EQ(Normalized(std::string_view("\0a", 2), NormalForm::kNfc), std::string("\0a", 2));
}

}  // namespace
}  // namespace headroom::engine
