// SPDX-License-Identifier: Apache-2.0
//
// What every text report is made of: colours that vanish in a pipe, bars, numbers in columns, and
// paragraphs that keep to the width.
//
// The style says what the terminal can show; no writer asks the environment itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "ledger/component.h"

namespace headroom {

struct TextStyle {
  bool colour = false;   // ANSI escapes
  bool unicode = false;  // block characters and typographic signs; else ASCII
  int width = 80;        // columns
};

enum class Colour : uint8_t {
  kPlain,
  kBold,
  kDim,
  kRed,
  kGreen,
  kYellow,
  kBlue,
  kMagenta,
  kCyan,
  kWhite,
  kBrightCyan,
  kBrightMagenta,
};

// `text` in `colour`, or as it is when the style has no colours.
std::string Paint(const TextStyle& style, Colour colour, std::string_view text);

// The first form on Unicode terminals, else the second.
std::string_view Sign(const TextStyle& style, std::string_view unicode, std::string_view ascii);

// Columns that UTF-8 text takes, escapes left out.
int DisplayWidth(std::string_view text);
std::string PadLeft(std::string_view text, int width);
std::string PadRight(std::string_view text, int width);
// At most `width` columns; a longer text loses its middle to an ellipsis.
std::string Shorten(const TextStyle& style, std::string_view text, int width);

// "1,278.5", for a column headed MiB; "<0.1" for what would show as nothing.
std::string MiBNumber(Bytes size);
// "335,143,938"
std::string Thousands(int64_t count);
// "16.7 %"
std::string Percent(double fraction, int decimals = 1);

// A bar of at most `width` cells, `fraction` of them filled; eighths of a cell in Unicode.
std::string Bar(const TextStyle& style, double fraction, int width);

// One bar for the whole of `components`: a run of cells for each, in colour or, without colours,
// in the letters of ComponentMark.
std::string StackedBar(const TextStyle& style, std::span<const Bytes> components, int width);
// The sign that stands for a component in bars and beside its name.
std::string ComponentMark(const TextStyle& style, Component component);

// `text` broken into lines of the style's width, the first behind `lead`, the rest indented by it.
std::string Paragraph(const TextStyle& style, std::string_view lead, std::string_view text);

}  // namespace headroom
