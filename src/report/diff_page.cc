// SPDX-License-Identifier: Apache-2.0
#include "report/diff_page.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "report/sections.h"

namespace headroom {
namespace {

constexpr size_t kMostModules = 200;
constexpr size_t kMostPhases = 400;

// Sizes of a table cannot be negative; a number in MiB can.
PageCell DeltaCell(Change change) {
  return PageNumber{static_cast<double>(change.delta().count()) / (1024.0 * 1024.0), 1};
}

// "run.pickle" of "/data/run.pickle".
std::string FileName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Cells "A", "B", "B - A" and the share of the larger; those of a side that does not know, in
// words.
class ChangeCells {
 public:
  ChangeCells(bool a_known, bool b_known) : a_known_(a_known), b_known_(b_known) {}
  std::vector<PageCell> Row(PageCell name, Change change) const {
    std::vector<PageCell> row = {std::move(name), Cell(change.a, a_known_),
                                 Cell(change.b, b_known_)};
    if (a_known_ && b_known_) {
      row.push_back(DeltaCell(change));
      row.emplace_back(Share(change.size(), std::max(change.a, change.b)));
    } else {
      row.resize(row.size() + 2);
    }
    return row;
  }

 private:
  static PageCell Cell(Bytes size, bool known) {
    return known ? PageCell(size) : PageCell(std::string("unknown"));
  }
  bool a_known_;
  bool b_known_;
};

bool IsNothing(Change change) { return change.a == Bytes(0) && change.b == Bytes(0); }

PageTable ComponentTable(const DiffReport& diff) {
  const ChangeCells cells(!diff.a_watched, !diff.b_watched);
  PageTable table;
  table.heading = "What grew and what shrank, by component";
  table.note = "Each at its own peak.";
  table.columns = {"component", "A", "B", "B - A, MiB", "share"};
  for (int i = 0; i < kComponentCount; ++i) {
    const Change change = diff.components[static_cast<size_t>(i)];
    const auto component = static_cast<Component>(i);
    if (IsNothing(change) || (component == Component::kContext && !diff.device)) continue;
    table.rows.push_back(cells.Row(component, change));
  }
  table.totals = {cells.Row(std::string("allocated"), diff.allocated),
                  cells.Row(std::string("reserved"), diff.reserved)};
  if (diff.device) {
    table.totals.push_back(ChangeCells(true, true).Row(std::string("device"), *diff.device));
  } else if (diff.outside_allocator) {
    table.totals.push_back(ChangeCells(diff.a_watched, diff.b_watched)
                               .Row(std::string("device"), diff.device_of_watched));
  }
  return table;
}

PageTable KindTable(const DiffReport& diff) {
  PageTable table;
  table.heading = "By kind of activations and temporaries";
  table.columns = {"kind", "A", "B", "B - A, MiB", "share"};
  if (diff.a_watched || diff.b_watched) return table;
  const ChangeCells cells(true, true);
  std::vector<std::pair<Bytes, std::vector<PageCell>>> rows;
  for (size_t i = 0; i < kKindCount; ++i) {
    const Change both = {diff.activation_kinds[i].a + diff.temporary_kinds[i].a,
                         diff.activation_kinds[i].b + diff.temporary_kinds[i].b};
    if (IsNothing(both)) continue;
    rows.emplace_back(both.size(), cells.Row(std::string(Name(static_cast<Kind>(i))), both));
  }
  std::ranges::stable_sort(rows, [](const auto& x, const auto& y) { return x.first > y.first; });
  for (auto& [size, row] : rows) table.rows.push_back(std::move(row));
  return table;
}

PageTable ModuleTable(const DiffReport& diff) {
  PageTable table;
  table.heading = "What grew and what shrank, by module";
  table.note = "At the peaks; modules that hold the same in both are left out.";
  table.columns = {"module", "A", "B", "B - A, MiB", "share"};
  for (const NamedChange& module : diff.modules) {
    if (module.change.delta() == Bytes(0) || table.rows.size() == kMostModules) break;
    table.rows.push_back(
        ChangeCells(true, true)
            .Row(module.name.empty() ? std::string("(none)") : module.name, module.change));
  }
  return table;
}

PageTable PhaseTable(const DiffReport& diff) {
  PageTable table;
  table.heading = "Phases that both have";
  table.note = "The highest allocated within each, and the difference when it ended.";
  table.columns = {"phase", "step", "peak of A", "peak of B", "B - A, MiB", "at its end, MiB"};
  for (const PhaseChange& phase : diff.phases) {
    if (table.rows.size() == kMostPhases) break;
    table.rows.push_back({std::string(PhaseWords(phase.name)), int64_t{phase.step}, phase.peak.a,
                          phase.peak.b, DeltaCell(phase.peak), DeltaCell(phase.allocated)});
  }
  return table;
}

void AddPicture(std::string name, DiffPicture picture, ReportPage& page) {
  if (picture.ledger != nullptr) page.ledgers.push_back({std::move(name), picture.ledger, 0});
  if (picture.timeline) {
    picture.timeline->name = std::move(name);
    page.timelines.push_back(std::move(*picture.timeline));
  }
}

}  // namespace

ReportPage DiffPage(const DiffReport& diff, DiffPicture a, DiffPicture b, std::string generator) {
  ReportPage page;
  page.generator = std::move(generator);
  page.kind = "diff";
  page.heading = Format("{} against {}", FileName(diff.a), FileName(diff.b));
  page.summary = {{Tone::kPlain, DiffVerdict(diff)},
                  {Tone::kPlain, "A: " + diff.a_peak},
                  {Tone::kPlain, "B: " + diff.b_peak}};
  page.facts = {"A " + diff.a, "B " + diff.b};
  AddPicture("A", std::move(a), page);
  AddPicture("B", std::move(b), page);
  page.side_by_side = true;
  page.tables = {ComponentTable(diff), KindTable(diff), ModuleTable(diff), PhaseTable(diff)};
  std::erase_if(page.tables, [](const PageTable& table) { return table.rows.empty(); });
  return page;
}

}  // namespace headroom
