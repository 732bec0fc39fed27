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
  if (!change.known()) return {};
  return PageNumber{static_cast<double>(change.delta().count()) / (1024.0 * 1024.0), 1};
}

// "run.pickle" of "/data/run.pickle".
std::string FileName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

PageCell SizeCell(std::optional<Bytes> size) {
  return size ? PageCell(*size) : PageCell(std::string("unknown"));
}

// Cells "A", "B", "B - A" and the share of the larger.
std::vector<PageCell> ChangeRow(PageCell name, Change change) {
  std::vector<PageCell> row = {std::move(name), SizeCell(change.a), SizeCell(change.b),
                               DeltaCell(change)};
  row.emplace_back();
  if (change.known()) row.back() = Share(change.size(), change.larger());
  return row;
}

PageTable ComponentTable(const DiffReport& diff) {
  PageTable table;
  table.heading = "What grew and what shrank, by component";
  table.note = "Each at its own peak.";
  table.columns = {"component", "A", "B", "B - A, MiB", "share"};
  for (int i = 0; i < kComponentCount; ++i) {
    const Change change = diff.components[static_cast<size_t>(i)];
    if (!change.empty()) table.rows.push_back(ChangeRow(static_cast<Component>(i), change));
  }
  table.totals = {ChangeRow(std::string("allocated"), diff.allocated),
                  ChangeRow(std::string("reserved"), diff.reserved)};
  if (!diff.device.empty()) table.totals.push_back(ChangeRow(std::string("device"), diff.device));
  return table;
}

PageTable KindTable(const DiffReport& diff) {
  PageTable table;
  table.heading = "By kind of activations and temporaries";
  table.columns = {"kind", "A", "B", "B - A, MiB", "share"};
  if (!diff.allocated.known()) return table;
  const KindChanges kinds = diff.kinds();
  std::vector<std::pair<Bytes, std::vector<PageCell>>> rows;
  for (size_t i = 0; i < kKindCount; ++i) {
    if (kinds[i].empty()) continue;
    rows.emplace_back(kinds[i].size(),
                      ChangeRow(std::string(Name(static_cast<Kind>(i))), kinds[i]));
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
        ChangeRow(module.name.empty() ? std::string("(none)") : module.name, module.change));
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
    table.rows.push_back({std::string(PhaseWords(phase.name)), int64_t{phase.step},
                          SizeCell(phase.peak.a), SizeCell(phase.peak.b), DeltaCell(phase.peak),
                          DeltaCell(phase.allocated)});
  }
  return table;
}

void AddPicture(std::string name, DiffPicture picture, ReportPage& page) {
  if (picture.ledger != nullptr) page.ledgers.push_back({name, picture.ledger, 0});
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
