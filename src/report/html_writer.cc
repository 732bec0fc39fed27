// SPDX-License-Identifier: Apache-2.0
#include "report/html_writer.h"

#include <algorithm>

#include "base/format.h"
#include "report/text.h"

namespace headroom {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
// Rows that a table shows before it is asked for the rest.
constexpr size_t kRowsShown = 12;

// Length of the well-formed UTF-8 sequence that `text` starts with, or 0 (Unicode 15, table 3-7).
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  const bool bad = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                   (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return bad ? 0 : length;
}

void AppendEscaped(std::string& out, char c) {
  switch (c) {
    case '&':
      out += "&amp;";
      return;
    case '<':
      out += "&lt;";
      return;
    case '>':
      out += "&gt;";
      return;
    case '"':
      out += "&quot;";
      return;
    case '\'':
      out += "&#39;";
      return;
    default:
      break;
  }
  const auto byte = static_cast<unsigned char>(c);
  const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
  if (control) {
    out += kReplacement;
  } else {
    out += c;
  }
}

bool IsNumeric(const PageCell& cell) {
  return std::holds_alternative<Bytes>(cell) || std::holds_alternative<int64_t>(cell) ||
         std::holds_alternative<double>(cell) || std::holds_alternative<PageNumber>(cell);
}

// A module path may be broken behind its dots.
std::string BreakAtDots(const std::string& html) {
  std::string out;
  for (size_t i = 0; i < html.size(); ++i) {
    out += html[i];
    const bool inside = html[i] == '.' && i > 0 && i + 1 < html.size() && html[i + 1] != ' ';
    if (inside) out += "<wbr>";
  }
  return out;
}

struct CellText {
  std::string html;
  std::string value;  // for sorting; empty for text
};

CellText TextOf(const PageCell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell))
    return {BreakAtDots(EscapeHtml(*text)), ""};
  if (const auto* size = std::get_if<Bytes>(&cell)) {
    return {*size == Bytes(0) ? "" : FormatMiB(*size), std::to_string(size->count())};
  }
  if (const auto* count = std::get_if<int64_t>(&cell)) {
    return {Thousands(*count), std::to_string(*count)};
  }
  if (const auto* fraction = std::get_if<double>(&cell)) {
    return {Percent(*fraction), Format("{:.6g}", *fraction)};
  }
  if (const auto* number = std::get_if<PageNumber>(&cell)) {
    return {Format("{:.{}f}", number->value, number->decimals), Format("{:.6g}", number->value)};
  }
  if (const auto* component = std::get_if<Component>(&cell)) {
    return {SwatchHtml(*component) + std::string(Name(*component)), ""};
  }
  return {};
}

std::string RowHtml(const std::vector<PageCell>& cells, const std::vector<bool>& numeric,
                    std::string_view row_class) {
  std::string out = row_class.empty() ? "<tr>" : Format("<tr class=\"{}\">", row_class);
  for (size_t i = 0; i < cells.size(); ++i) {
    const CellText text = TextOf(cells[i]);
    // The first cell names its row.
    const std::string_view tag = i == 0 ? "th" : "td";
    out += Format("<{}{}", tag, i == 0 ? " scope=\"row\"" : "");
    if (i < numeric.size() && numeric[i]) {
      out += " class=\"num\"";
    } else if (std::holds_alternative<Component>(cells[i])) {
      out += " class=\"of\"";
    }
    if (!text.value.empty()) out += Format(" data-v=\"{}\"", text.value);
    out += Format(">{}</{}>", text.html, tag);
  }
  return out + "</tr>\n";
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) {
      out += kReplacement;
      text.remove_prefix(1);
    } else if (length == 1) {
      AppendEscaped(out, text.front());
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

std::string SwatchHtml(Component component) {
  return Format("<span class=\"swatch c-{}\"></span>", Name(component));
}

std::string TableHtml(const PageTable& table, std::string_view id) {
  std::vector<bool> numeric(table.columns.size());
  for (const std::vector<PageCell>& row : table.rows) {
    for (size_t i = 0; i < std::min(row.size(), numeric.size()); ++i) {
      if (IsNumeric(row[i])) numeric[i] = true;
    }
  }
  std::string out =
      Format("<section class=\"card\" aria-labelledby=\"{}-h\">\n<h2 id=\"{}-h\">{}</h2>\n", id, id,
             EscapeHtml(table.heading));
  if (!table.note.empty()) out += Format("<p class=\"note\">{}</p>\n", EscapeHtml(table.note));
  // A table that is wider than the window scrolls by itself, with the keyboard too.
  out += Format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"{}-h\">"
      "<table id=\"{}\" class=\"sortable\">\n<caption class=\"unseen\">{}</caption>\n<thead><tr>",
      id, id, EscapeHtml(table.heading));
  for (size_t i = 0; i < table.columns.size(); ++i) {
    out += Format("<th scope=\"col\"{}>{}</th>", numeric[i] ? " class=\"num\"" : "",
                  EscapeHtml(table.columns[i]));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (size_t i = 0; i < table.rows.size(); ++i) {
    out += RowHtml(table.rows[i], numeric, i < kRowsShown ? "" : "more");
  }
  out += "</tbody>\n";
  if (!table.totals.empty()) {
    out += "<tfoot>\n";
    for (const std::vector<PageCell>& row : table.totals) out += RowHtml(row, numeric, "");
    out += "</tfoot>\n";
  }
  return out + "</table></div>\n</section>\n";
}

}  // namespace headroom
