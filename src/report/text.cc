// SPDX-License-Identifier: Apache-2.0
#include "report/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/format.h"

namespace headroom {
namespace {

// SGR parameters; the order of Colour.
constexpr std::array<std::string_view, 12> kCodes = {"",   "1",  "2",  "31", "32", "33",
                                                     "34", "35", "36", "37", "96", "95"};

// How a component looks in a bar: a filled cell in its colour, or a letter without colours.
struct Look {
  Colour colour;
  std::string_view cell;
  std::string_view letter;
};
constexpr std::array<Look, kComponentCount> kLooks = {{
    {Colour::kBlue, "█", "w"},
    {Colour::kCyan, "█", "g"},
    {Colour::kMagenta, "█", "o"},
    {Colour::kGreen, "█", "a"},
    {Colour::kYellow, "█", "t"},
    {Colour::kWhite, "█", "i"},
    {Colour::kBrightCyan, "█", "k"},
    {Colour::kBrightMagenta, "█", "s"},
    {Colour::kDim, "▒", "."},
    {Colour::kDim, "░", ":"},
}};

std::string Repeat(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

std::string WithThousands(std::string digits) {
  size_t end = digits.find('.');
  if (end == std::string::npos) end = digits.size();
  const size_t start = digits.starts_with('-') ? 1 : 0;
  for (size_t at = end; at > start + 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

// Position of the code point that follows `columns` code points.
size_t ByteOf(std::string_view text, int columns) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    const bool starts = (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
    if (starts && columns-- == 0) break;
  }
  return at;
}

// `cells` cells shared out by size, so that they add up (largest remainders first).
std::vector<int> ShareCells(std::span<const Bytes> sizes, int cells) {
  const Bytes total = std::accumulate(sizes.begin(), sizes.end(), Bytes(0));
  std::vector<int> shares(sizes.size(), 0);
  if (total <= Bytes(0)) return shares;
  std::vector<std::pair<double, size_t>> remainders;
  int given = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const double exact =
        static_cast<double>(sizes[i].count()) * cells / static_cast<double>(total.count());
    shares[i] = static_cast<int>(exact);
    given += shares[i];
    remainders.emplace_back(shares[i] - exact, i);
  }
  std::sort(remainders.begin(), remainders.end());
  for (size_t i = 0; given < cells && i < remainders.size(); ++i, ++given) {
    ++shares[remainders[i].second];
  }
  return shares;
}

}  // namespace

std::string Paint(const TextStyle& style, Colour colour, std::string_view text) {
  if (!style.colour || colour == Colour::kPlain || text.empty()) return std::string(text);
  return Format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<size_t>(colour)], text);
}

std::string_view Sign(const TextStyle& style, std::string_view unicode, std::string_view ascii) {
  return style.unicode ? unicode : ascii;
}

int DisplayWidth(std::string_view text) {
  int width = 0;
  bool escape = false;
  for (const char c : text) {
    if (c == '\x1b') escape = true;
    if (!escape && (static_cast<unsigned char>(c) & 0xC0) != 0x80) ++width;
    if (escape && c == 'm') escape = false;
  }
  return width;
}

std::string PadLeft(std::string_view text, int width) {
  return std::string(static_cast<size_t>(std::max(0, width - DisplayWidth(text))), ' ') +
         std::string(text);
}

std::string PadRight(std::string_view text, int width) {
  return std::string(text) +
         std::string(static_cast<size_t>(std::max(0, width - DisplayWidth(text))), ' ');
}

std::string Shorten(const TextStyle& style, std::string_view text, int width) {
  const int columns = DisplayWidth(text);
  if (columns <= width) return std::string(text);
  const std::string_view ellipsis = Sign(style, "…", "..");
  const int kept = std::max(0, width - DisplayWidth(ellipsis));
  const int tail = kept / 2;
  return std::string(text.substr(0, ByteOf(text, kept - tail))) + std::string(ellipsis) +
         std::string(text.substr(ByteOf(text, columns - tail)));
}

std::string MiBNumber(Bytes size) {
  if (size > Bytes(0) && size.mib() < 0.05) return "<0.1";
  return WithThousands(Format("{:.1f}", size.mib()));
}

std::string Thousands(int64_t count) { return WithThousands(std::to_string(count)); }

std::string Percent(double fraction, int decimals) {
  return Format("{:.{}f} %", fraction * 100, decimals);
}

std::string Bar(const TextStyle& style, double fraction, int width) {
  const double cells = std::clamp(fraction, 0.0, 1.0) * width;
  if (!style.unicode) return Repeat("#", static_cast<int>(std::lround(cells)));
  constexpr std::array<std::string_view, 8> kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<int>(std::lround(cells * 8));
  return Repeat("█", eighths / 8) + std::string(kEighths[static_cast<size_t>(eighths % 8)]);
}

std::string ComponentMark(const TextStyle& style, Component component) {
  const Look& look = kLooks[static_cast<size_t>(component)];
  return Paint(style, look.colour, style.colour && style.unicode ? look.cell : look.letter);
}

std::string StackedBar(const TextStyle& style, std::span<const Bytes> components, int width) {
  const std::vector<int> cells = ShareCells(components, width);
  std::string bar;
  for (size_t i = 0; i < cells.size(); ++i) {
    const Look& look = kLooks[i];
    const std::string_view cell = style.colour && style.unicode ? look.cell : look.letter;
    bar += Paint(style, look.colour, Repeat(cell, cells[i]));
  }
  return bar;
}

std::string Paragraph(const TextStyle& style, std::string_view lead, std::string_view text) {
  std::string out(lead);
  int column = DisplayWidth(lead);
  const int indent = column;
  while (!text.empty()) {
    const size_t space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    const int length = DisplayWidth(word);
    if (column > indent && column + 1 + length > style.width) {
      out += '\n' + std::string(static_cast<size_t>(indent), ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += length;
    text = space == std::string_view::npos ? std::string_view() : text.substr(space + 1);
  }
  return out + '\n';
}

}  // namespace headroom
