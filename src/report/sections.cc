// SPDX-License-Identifier: Apache-2.0
#include "report/sections.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/format.h"

namespace headroom {
namespace {

constexpr int kMargin = 2;
// Kinds below this share of their component are summed as "other".
constexpr double kSmallestKind = 0.02;
constexpr size_t kMostKinds = 6;

// A line of the component table. Name, MiB, share and bytes per parameter end at columns 26, 38, 48
// and 62; where there are fewer, at 22, 32 and 40.
std::string Row(const TextStyle& style, std::string_view name, std::string_view size,
                std::string_view share, std::string_view per_parameter) {
  constexpr int kWide = 62;
  std::string row = Margin();
  if (style.width < kWide) {
    row += PadRight(name, 20) + PadLeft(size, 10) + PadLeft(share, 8);
  } else {
    row += PadRight(name, 24) + PadLeft(size, 12) + PadLeft(share, 10) + PadLeft(per_parameter, 14);
  }
  return WithoutTrailingSpaces(std::move(row));
}

// The largest kinds of one component, one dim row each, the rest summed.
std::string KindRows(const TextStyle& style, const KindBytes& kinds, Bytes device) {
  struct Entry {
    Bytes size;
    std::string_view name;
  };
  std::vector<Entry> entries;
  for (size_t i = 1; i < kinds.size(); ++i)
    entries.push_back({kinds[i], Name(static_cast<Kind>(i))});
  std::ranges::stable_sort(entries, std::greater(), &Entry::size);
  Bytes total;
  for (const Bytes size : kinds) total += size;
  Bytes rest = kinds[static_cast<size_t>(Kind::kOther)];
  std::string out;
  size_t shown = 0;
  const auto add = [&](std::string_view name, Bytes size) {
    out += PaintLines(
        style, Colour::kDim,
        Row(style, "    " + std::string(name), MiBNumber(size), Percent(Share(size, device)), ""));
  };
  for (const Entry& entry : entries) {
    if (shown < kMostKinds && Share(entry.size, total) >= kSmallestKind) {
      add(entry.name, entry.size);
      ++shown;
    } else {
      rest += entry.size;
    }
  }
  if (shown > 0 && rest > Bytes(0)) add("other", rest);
  return out;
}

std::string PerParameter(Bytes size, const PlanReport& report) {
  if (report.header.parameters == 0) return "";
  const auto parameters = static_cast<double>(report.header.parameters);
  return Format("{:.2f}", static_cast<double>(size.count()) / parameters);
}

// Only what is allocated grows with the parameters; the other sums have no such figure.
std::string SumRow(const TextStyle& style, std::string_view name, Bytes size,
                   const PlanReport& report) {
  const std::string per = name == "allocated" ? PerParameter(size, report) : "";
  return PaintLines(style, Colour::kBold,
                    Row(style, "= " + std::string(name), MiBNumber(size),
                        Percent(Share(size, report.device)), per));
}

std::string ComponentRow(const TextStyle& style, const PlanReport& report, Component component) {
  const Bytes size = report.peak.components[static_cast<size_t>(component)];
  const std::string name = ComponentMark(style, component) + " " + std::string(Name(component));
  const bool allocated = static_cast<int>(component) < kAllocatedComponentCount;
  return Row(style, name, MiBNumber(size), Percent(Share(size, report.device)),
             allocated ? PerParameter(size, report) : "");
}

// Places are read from the inside out: the end is what can be spared.
std::string CutEnd(const TextStyle& style, const std::string& text, int width) {
  if (DisplayWidth(text) <= width) return text;
  const std::string_view mark = Sign(style, "…", "...");
  std::string cut;
  int columns = 0;
  for (size_t at = 0; at < text.size();) {
    size_t next = at + 1;
    while (next < text.size() && (static_cast<unsigned char>(text[next]) & 0xC0) == 0x80) ++next;
    if (columns + 1 + DisplayWidth(mark) > width) break;
    cut += text.substr(at, next - at);
    ++columns;
    at = next;
  }
  return cut.append(mark);
}

}  // namespace

std::string Margin() { return std::string(kMargin, ' '); }

double Share(Bytes part, Bytes whole) {
  return whole > Bytes(0) ? static_cast<double>(part.count()) / static_cast<double>(whole.count())
                          : 0;
}

std::string PaintLines(const TextStyle& style, Colour colour, std::string_view lines) {
  return Paint(style, colour, lines.substr(0, lines.size() - 1)) + '\n';
}

std::string Heading(const TextStyle& style, std::string_view text) {
  return '\n' + PaintLines(style, Colour::kBold, Paragraph(style, "", text));
}

std::string WithoutTrailingSpaces(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

std::string MeaningLine(const TextStyle& style, std::string_view lead, std::string_view meaning) {
  constexpr int kGap = 2;
  const bool fits = DisplayWidth(lead) + kGap + DisplayWidth(meaning) <= style.width;
  if (fits) {
    const std::string gap = meaning.empty() ? "" : std::string(kGap, ' ');
    return Format("{}{}{}\n", lead, gap, Paint(style, Colour::kDim, meaning));
  }
  return std::string(lead) + '\n' +
         PaintLines(style, Colour::kDim, Paragraph(style, std::string(3 * kMargin, ' '), meaning));
}

std::string TotalLine(const TextStyle& style, std::string_view name, Bytes size,
                      std::string_view meaning) {
  return MeaningLine(
      style,
      Margin() + PadRight(name, 11) + Paint(style, Colour::kBold, PadLeft(FormatMiB(size), 13)),
      meaning);
}

std::string PeakSentence(const PlanPeak& peak) {
  std::string text = "Peak";
  if (peak.step > 0) text += Format(" in step {},", peak.step);
  text += peak.step > 0 ? " " : " while ";
  text += PhaseWords(peak.phase);
  if (!peak.module.empty()) text += Format(", at {}", peak.module);
  if (!peak.op.empty()) text += Format(" ({})", peak.op);
  return text;
}

std::string ComponentTable(const PlanReport& report, const TextStyle& style) {
  const std::string_view per = report.header.parameters == 0 ? "" : "B/parameter";
  std::string out = PaintLines(style, Colour::kDim, Row(style, "component", "MiB", "share", per));
  for (int i = 0; i < kAllocatedComponentCount; ++i) {
    if (report.peak.components[static_cast<size_t>(i)] == Bytes(0)) continue;
    const auto component = static_cast<Component>(i);
    out += ComponentRow(style, report, component);
    if (component == Component::kActivations) {
      out += KindRows(style, report.peak.activation_kinds, report.device);
    } else if (component == Component::kTemporaries) {
      out += KindRows(style, report.peak.temporary_kinds, report.device);
    }
  }
  out += SumRow(style, "allocated", report.allocated, report);
  out += ComponentRow(style, report, Component::kCache);
  out += SumRow(style, "reserved", report.reserved, report);
  if (report.device == report.reserved) return out;
  out += ComponentRow(style, report, Component::kContext);
  return out + SumRow(style, "device", report.device, report);
}

std::string Bullets(const TextStyle& style, const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) {
    out += Paragraph(style, Format("{}{} ", Margin(), Sign(style, "•", "-")), line);
  }
  return out;
}

// What there is room for: the columns that are shown, how wide, and how far apart.
struct TextTable::Layout {
  std::vector<size_t> shown;
  std::vector<int> widths;  // of all columns
  int gap = 2;
  int Total() const {
    int total = kMargin + gap * (static_cast<int>(shown.size()) - 1);
    for (const size_t i : shown) total += widths[i];
    return total;
  }
};

TextTable::Layout TextTable::Fit(int width) const {
  constexpr int kNarrowestLast = 16;
  constexpr int kNarrowestText = 12;
  Layout layout;
  for (size_t i = 0; i < columns_.size(); ++i) {
    layout.shown.push_back(i);
    layout.widths.push_back(DisplayWidth(columns_[i].name));
    for (const auto& row : rows_) {
      layout.widths[i] = std::max(layout.widths[i], DisplayWidth(row[i]));
    }
  }
  const std::vector<int> natural = layout.widths;
  const auto shrink = [&](size_t column, int narrowest) {
    int& now = layout.widths[column];
    const int over = layout.Total() - width;
    if (over > 0) now = std::min(now, std::max(now - over, narrowest));
  };
  shrink(columns_.size() - 1, kNarrowestLast);
  if (layout.Total() > width) layout.gap = 1;
  for (size_t i = columns_.size(); i-- > 0;) {
    if (columns_[i].align == Align::kLeft) shrink(i, kNarrowestText);
  }
  // Numbers cannot be cut: the last ones give way.
  for (size_t i = columns_.size(); i-- > 1 && layout.Total() > width;) {
    if (columns_[i].align == Align::kRight) std::erase(layout.shown, i);
  }
  for (const size_t i : layout.shown) {
    if (columns_[i].align == Align::kRight) continue;
    layout.widths[i] = std::min(natural[i], layout.widths[i] + std::max(0, width - layout.Total()));
  }
  return layout;
}

std::string TextTable::Line(const TextStyle& style, const std::vector<std::string>& cells,
                            const Layout& layout) const {
  std::string line(kMargin, ' ');
  for (const size_t i : layout.shown) {
    if (i != layout.shown.front()) line.append(static_cast<size_t>(layout.gap), ' ');
    const int width = layout.widths[i];
    if (columns_[i].wraps && DisplayWidth(cells[i]) > width) {
      TextStyle narrow = style;
      narrow.width = DisplayWidth(line) + width;
      return Paragraph(narrow, line, cells[i]);
    }
    const std::string cell = CutEnd(style, cells[i], width);
    line += columns_[i].align == Align::kLeft ? PadRight(cell, width) : PadLeft(cell, width);
  }
  return WithoutTrailingSpaces(std::move(line));
}

std::string TextTable::Text(const TextStyle& style) const {
  const Layout layout = Fit(style.width);
  std::vector<std::string> names;
  for (const Column& column : columns_) names.emplace_back(column.name);
  std::string out = PaintLines(style, Colour::kDim, Line(style, names, layout));
  for (const auto& row : rows_) out += Line(style, row, layout);
  return out;
}

}  // namespace headroom
