// SPDX-License-Identifier: Apache-2.0
#include "report/chart_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/format.h"

namespace headroom {
namespace {

constexpr int kMargin = 2;
constexpr int kLabelWidth = 14;

// What a column of the chart reaches up to.
struct Column {
  Bytes solid;  // of the first layer
  Bytes all;
};

// Empty columns lie between two samples and take what was before them.
std::vector<Column> Columns(const PageTimeline& timeline, int count) {
  std::vector<Column> columns(static_cast<size_t>(count), Column{Bytes(-1), Bytes(-1)});
  const double begin = timeline.seconds.front();
  const double span = std::max(1e-9, timeline.seconds.back() - begin);
  for (size_t i = 0; i < timeline.seconds.size(); ++i) {
    const double share = (timeline.seconds[i] - begin) / span;
    Column& column =
        columns[static_cast<size_t>(std::min(count - 1, static_cast<int>(share * count)))];
    Bytes all;
    for (const PageTimeline::Layer& layer : timeline.layers) all += layer.bytes[i];
    column.all = std::max(column.all, all);
    column.solid = std::max(column.solid, timeline.layers.front().bytes[i]);
  }
  Column before;
  for (Column& column : columns) {
    if (column.all < Bytes(0)) column = before;
    before = column;
  }
  return columns;
}

// The cell of one row for a size of `eighths` of a row.
std::string_view Cell(const TextStyle& style, int64_t eighths, int row, bool solid) {
  constexpr std::array<std::string_view, 8> kEighths = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇"};
  const int64_t inside = std::clamp<int64_t>(eighths - int64_t{row} * 8, 0, 8);
  if (!style.unicode) return inside < 4 ? " " : solid ? "#" : ".";
  if (!solid) return inside < 4 ? " " : "░";
  return inside == 8 ? "█" : kEighths[static_cast<size_t>(inside)];
}

std::string SecondsText(double seconds) {
  return seconds < 100 ? Format("{:.1f} s", seconds) : Format("{:.0f} s", seconds);
}

}  // namespace

std::string ChartText(const PageTimeline& timeline, const TextStyle& style, int height) {
  if (timeline.seconds.empty() || timeline.layers.empty()) return "";
  const int width = std::max(10, style.width - kMargin - kLabelWidth - 2);
  const std::vector<Column> columns = Columns(timeline, width);
  Bytes highest(1);
  for (const Column& column : columns) highest = std::max(highest, column.all);
  const auto eighths = [&](Bytes size) {
    const double share = static_cast<double>(size.count()) / static_cast<double>(highest.count());
    const int64_t exact = std::llround(share * height * 8);
    // Something is never drawn as nothing.
    return size > Bytes(0) ? std::max<int64_t>(exact, style.unicode ? 1 : 4) : int64_t{0};
  };
  std::string out;
  for (int row = height - 1; row >= 0; --row) {
    const std::string label = row == height - 1 ? FormatMiB(highest) : "";
    std::string line = std::string(kMargin, ' ') + PadLeft(label, kLabelWidth - 1) + ' ' +
                       std::string(Sign(style, "│", "|"));
    std::string cells;
    for (const Column& column : columns) {
      const std::string_view solid = Cell(style, eighths(column.solid), row, true);
      cells += solid == " " ? Cell(style, eighths(column.all), row, false) : solid;
    }
    cells.erase(cells.find_last_not_of(' ') + 1);
    out += line + Paint(style, Colour::kBlue, cells) + '\n';
  }
  const std::string first = SecondsText(timeline.seconds.front());
  const std::string last = SecondsText(timeline.seconds.back());
  return out + std::string(kMargin + kLabelWidth, ' ') + first +
         PadLeft(last, width + 1 - DisplayWidth(first)) + '\n';
}

}  // namespace headroom
