// SPDX-License-Identifier: Apache-2.0
//
// Sections: the parts that text reports share, so that a plan, a recording and a comparison of two
// look alike. Every part ends in a newline and is indented by two columns.
//
//   component                        MiB     share   B/parameter      ComponentTable
//   w weights                    1,279.2    17.0 %          4.00
//   = allocated                  6,578.8    87.6 %         20.58
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "report/plan_report.h"
#include "report/text.h"

namespace headroom {

// Two columns.
std::string Margin();
// 0 when there is no whole.
double Share(Bytes part, Bytes whole);
std::string WithoutTrailingSpaces(std::string line);
// `lines` (ending in a newline) in one colour.
std::string PaintLines(const TextStyle& style, Colour colour, std::string_view lines);

// An empty line and the bold text.
std::string Heading(const TextStyle& style, std::string_view text);
// "  allocated    6,578.8 MiB  the tensors, at the peak"
// `lead` and what it means, on a line of its own where both do not fit on one.
std::string MeaningLine(const TextStyle& style, std::string_view lead, std::string_view meaning);
std::string TotalLine(const TextStyle& style, std::string_view name, Bytes size,
                      std::string_view meaning);
// "Peak in step 2, backward, at bert.encoder.layer.23 (AddmmBackward0)"
std::string PeakSentence(const PlanPeak& peak);
// The peak by component and kind, with the totals. Without a context (a recording does not see it)
// shares are of reserved and the rows behind it are left out; without a number of parameters, so is
// the last column.
std::string ComponentTable(const PlanReport& report, const TextStyle& style);
std::string Bullets(const TextStyle& style, const std::vector<std::string>& lines);

// Rows under headings. Columns are as wide as their widest cell; the last one takes what is left of
// the line and is shortened to it. On a narrow terminal words are shortened first, and then the
// last numbers left out.
class TextTable {
 public:
  enum class Align : uint8_t { kLeft, kRight };
  struct Column {
    std::string_view name;
    Align align = Align::kRight;
    bool wraps = false;  // of the last column: is continued on the next line, not shortened
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // REQUIRES: a cell for every column.
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  size_t rows() const { return rows_.size(); }
  std::string Text(const TextStyle& style) const;

 private:
  struct Layout;
  Layout Fit(int width) const;
  std::string Line(const TextStyle& style, const std::vector<std::string>& cells,
                   const Layout& layout) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace headroom
