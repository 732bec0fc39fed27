// SPDX-License-Identifier: Apache-2.0
#include "report/text.h"

#include <gtest/gtest.h>

#include <array>
#include <sstream>
#include <string>

#include "report/sections.h"

namespace headroom {
namespace {

TEST(Text, WidthCountsCharactersNotBytesOrEscapes) {
  EXPECT_EQ(DisplayWidth("×24"), 3);
  EXPECT_EQ(DisplayWidth("\x1b[31mred\x1b[0m"), 3);
  EXPECT_EQ(PadLeft("×", 3), "  ×");
}

TEST(Text, ShortenKeepsBothEnds) {
  EXPECT_EQ(Shorten({}, "abcdefghij", 6), "ab..ij");
  EXPECT_EQ(Shorten({.unicode = true}, "abcdefghij", 5), "ab…ij");
  EXPECT_EQ(Shorten({}, "abc", 3), "abc");
}

TEST(Text, NumbersHaveThousandsAndNeverVanish) {
  EXPECT_EQ(MiBNumber(MiB(1278) + KiB(512)), "1,278.5");
  EXPECT_EQ(MiBNumber(Bytes(512)), "<0.1");
  EXPECT_EQ(MiBNumber(Bytes(0)), "0.0");
  EXPECT_EQ(Thousands(335143938), "335,143,938");
  EXPECT_EQ(Percent(0.1672), "16.7 %");
}

TEST(TextTable, FitsNarrowTerminals) {
  using Align = TextTable::Align;
  TextTable table({{"name", Align::kLeft}, {"A"}, {"B"}, {"share"}, {"what", Align::kLeft, true}});
  table.Add({"activations of all layers", "1,234.5", "2,345.6", "+12.34 %", "goes when they go"});
  for (const int width : {40, 50, 60, 80}) {
    std::istringstream lines(table.Text({.width = width}));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(DisplayWidth(line), width);
  }
  EXPECT_EQ(table.Text({.width = 40}),
            "  name                    A what\n"
            "  activations of... 1,234.5 goes when\n"
            "                            they go\n");
}

TEST(Text, StackedBarFillsItsWidthExactly) {
  const std::array<Bytes, 3> sizes = {MiB(1), MiB(1), MiB(1)};
  for (int width = 0; width < 20; ++width) {
    EXPECT_EQ(DisplayWidth(StackedBar({}, sizes, width)), width);
  }
  EXPECT_EQ(StackedBar({}, std::array<Bytes, 3>{MiB(2), Bytes(0), MiB(2)}, 4), "wwoo");
  EXPECT_EQ(StackedBar({}, std::array<Bytes, 2>{}, 4), "");
}

TEST(Text, BarUsesEighthsOnUnicodeTerminals) {
  EXPECT_EQ(Bar({.unicode = true}, 0.5, 3), "█▌");
  EXPECT_EQ(Bar({}, 0.5, 4), "##");
  EXPECT_EQ(Bar({}, 7.0, 4), "####");
}

TEST(Text, ParagraphIndentsWhatFollowsItsLead) {
  EXPECT_EQ(Paragraph({.width = 12}, "- ", "one two three four"), "- one two\n  three four\n");
  EXPECT_EQ(Paragraph({.width = 4}, "", "longword x"), "longword\nx\n");
}

}  // namespace
}  // namespace headroom
