// SPDX-License-Identifier: Apache-2.0
#include "report/html_sections.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>

#include "base/format.h"
#include "report/module_tree.h"
#include "report/plan_report.h"

namespace headroom {
namespace {

// A snapshot can have thousands of holders and phases; a page shows those that weigh.
constexpr size_t kMostHolders = 60;
constexpr size_t kMostModules = 400;
constexpr size_t kMostPhases = 400;

double Share(Bytes part, Bytes whole) {
  return whole > Bytes(0) ? static_cast<double>(part.count()) / static_cast<double>(whole.count())
                          : 0;
}

std::string HeadingOf(std::string_view what, const PageLedger& run) {
  return run.name.empty() ? std::string(what) : Format("{}: {}", run.name, what);
}

std::string OrNone(std::string text) { return text.empty() ? "(none)" : text; }

// ---- Components ----

class ComponentRows {
 public:
  ComponentRows(const PlanReport& report, int64_t parameters)
      : report_(report), parameters_(parameters) {}

  std::vector<PageCell> Row(PageCell name, Bytes size, bool per_parameter) const {
    std::vector<PageCell> row = {std::move(name), size, Share(size, report_.device)};
    if (parameters_ == 0) return row;
    if (per_parameter) {
      row.emplace_back(
          PageNumber{static_cast<double>(size.count()) / static_cast<double>(parameters_)});
    } else {
      row.emplace_back();
    }
    return row;
  }

 private:
  const PlanReport& report_;
  int64_t parameters_;
};

PageTable ComponentTable(const PageLedger& run, const PlanReport& report) {
  PageTable table;
  table.heading = HeadingOf("Components at the peak", run);
  table.columns = {"component", "size", "share"};
  if (run.parameters > 0) table.columns.emplace_back("bytes per parameter");
  const ComponentRows rows(report, run.parameters);
  for (int i = 0; i < kComponentCount; ++i) {
    const Bytes size = report.peak.components[static_cast<size_t>(i)];
    if (size == Bytes(0)) continue;
    table.rows.push_back(rows.Row(static_cast<Component>(i), size, i < kAllocatedComponentCount));
  }
  table.totals = {rows.Row(std::string("allocated"), report.allocated, true),
                  rows.Row(std::string("reserved"), report.reserved, false)};
  // A recording does not see what lies outside the allocator.
  if (report.device > report.reserved) {
    table.totals.push_back(rows.Row(std::string("device"), report.device, false));
  }
  return table;
}

PageTable KindTable(const PageLedger& run, const PlanReport& report) {
  PageTable table;
  table.heading = HeadingOf("What activations and temporaries hold at the peak", run);
  table.columns = {"kind", "activations", "temporaries", "together", "share"};
  const auto at = [](const KindBytes& kinds, size_t i) { return kinds[i]; };
  Bytes activations;
  Bytes temporaries;
  for (size_t i = 0; i < kKindCount; ++i) {
    const Bytes a = at(report.peak.activation_kinds, i);
    const Bytes t = at(report.peak.temporary_kinds, i);
    activations += a;
    temporaries += t;
    if (a + t == Bytes(0)) continue;
    table.rows.push_back(
        {std::string(Name(static_cast<Kind>(i))), a, t, a + t, Share(a + t, report.allocated)});
  }
  std::ranges::stable_sort(table.rows, [](const auto& a, const auto& b) {
    return std::get<Bytes>(a[3]) > std::get<Bytes>(b[3]);
  });
  const Bytes both = activations + temporaries;
  table.totals = {
      {std::string("sum"), activations, temporaries, both, Share(both, report.allocated)}};
  return table;
}

// ---- Holders ----

struct Holder {
  Component component{};
  Kind kind{};
  std::string module;
  std::string op;
  Bytes bytes;
  int64_t blocks = 0;
};

std::vector<Holder> HoldersAtPeak(const Ledger& ledger) {
  std::map<std::tuple<Component, Kind, std::string, std::string>, Holder> holders;
  if (ledger.events().empty()) return {};
  for (const LiveBlock& block : ledger.LiveAt(ledger.peak_event())) {
    const MemoryEvent& event = ledger.events()[block.event];
    std::string module = WithoutNumbers(ledger.ModulePath(event.module));
    std::string op = ledger.OpName(event.op);
    Holder& holder = holders[{event.component, event.kind, module, op}];
    if (holder.blocks == 0) {
      holder = {event.component, event.kind, std::move(module), std::move(op), Bytes(0), 0};
    }
    holder.bytes += block.bytes;
    ++holder.blocks;
  }
  std::vector<Holder> sorted;
  for (auto& [key, holder] : holders) sorted.push_back(std::move(holder));
  std::ranges::stable_sort(sorted, std::greater(), &Holder::bytes);
  return sorted;
}

PageTable HolderTable(const PageLedger& run) {
  PageTable table;
  table.heading = HeadingOf("Who holds memory at the peak", run);
  table.note =
      "Blocks of one component, kind, module and operation together; * stands for every layer.";
  table.columns = {"module", "component", "kind", "made by", "blocks", "size", "share"};
  const Bytes allocated = run.ledger->peak_allocated();
  Bytes rest;
  int64_t rest_blocks = 0;
  for (Holder& holder : HoldersAtPeak(*run.ledger)) {
    if (table.rows.size() == kMostHolders) {
      rest += holder.bytes;
      rest_blocks += holder.blocks;
      continue;
    }
    table.rows.push_back({OrNone(std::move(holder.module)), holder.component,
                          std::string(Name(holder.kind)), OrNone(std::move(holder.op)),
                          holder.blocks, holder.bytes, Share(holder.bytes, allocated)});
  }
  if (rest_blocks > 0) {
    table.totals.push_back(
        {std::string("all others"), {}, {}, {}, rest_blocks, rest, Share(rest, allocated)});
  }
  return table;
}

// ---- Modules ----

Bytes Sum(const ComponentBytes& bytes) {
  Bytes sum;
  for (const Bytes size : bytes) sum += size;
  return sum;
}

class ModuleRows {
 public:
  explicit ModuleRows(const ComponentBytes& total) {
    for (int i = 0; i < kAllocatedComponentCount; ++i) {
      if (total[static_cast<size_t>(i)] > Bytes(0)) shown_.push_back(static_cast<Component>(i));
    }
  }

  std::vector<std::string> Columns() const {
    std::vector<std::string> columns = {"module", "modules", "size"};
    for (const Component component : shown_) columns.emplace_back(Name(component));
    return columns;
  }

  std::vector<PageCell> Row(std::string name, PageCell count, const ComponentBytes& bytes) const {
    std::vector<PageCell> row = {std::move(name), std::move(count), Sum(bytes)};
    for (const Component component : shown_)
      row.emplace_back(bytes[static_cast<size_t>(component)]);
    return row;
  }

 private:
  std::vector<Component> shown_;
};

// A row for every node that holds something itself, so that the rows add up.
void AddOwnRows(const ModuleNode& node, const std::string& path, int64_t count,
                const ModuleRows& rows, PageTable& table) {
  if (node.own != ComponentBytes{}) table.rows.push_back(rows.Row(OrNone(path), count, node.own));
  for (const ModuleNode& child : node.children) {
    AddOwnRows(child, path.empty() ? child.name : path + "." + child.name, count * child.count,
               rows, table);
  }
}

PageTable ModuleTable(const PageLedger& run, const PlanReport& report) {
  const ModuleNode root = BuildModuleTree(report.peak.modules);
  const ModuleRows rows(root.total);
  PageTable table;
  table.heading = HeadingOf("Modules at the peak", run);
  table.note = "Equal layers are one row, which holds the sum of all of them.";
  table.columns = rows.Columns();
  AddOwnRows(root, "", 1, rows, table);
  std::ranges::stable_sort(table.rows, [](const auto& a, const auto& b) {
    return std::get<Bytes>(a[2]) > std::get<Bytes>(b[2]);
  });
  if (table.rows.size() > kMostModules) {
    Bytes rest = Sum(root.total);
    table.rows.resize(kMostModules);
    for (const auto& row : table.rows) rest -= std::get<Bytes>(row[2]);
    std::vector<PageCell> others(table.columns.size());
    others[0] = std::string("all others");
    others[2] = rest;
    table.totals.push_back(std::move(others));
  }
  table.totals.push_back(rows.Row("allocated", {}, root.total));
  return table;
}

// ---- Phases ----

PageTable PhaseTable(const PageLedger& run, const PlanReport& report) {
  PageTable table;
  table.heading = HeadingOf("Phases", run);
  table.note = "The highest allocated within each phase, and what was held when it ended.";
  table.columns = {"phase", "step", "peak", "allocated at its end", "reserved at its end"};
  for (const PlanPhase& phase : report.phases) {
    if (table.rows.size() == kMostPhases) {
      table.note += Format(" The first {} of {} phases.", kMostPhases, report.phases.size());
      break;
    }
    table.rows.push_back({std::string(PhaseWords(phase.mark.name)), int64_t{phase.mark.step},
                          phase.mark.peak_allocated, phase.mark.allocated, phase.mark.reserved});
  }
  return table;
}

}  // namespace

std::string WithoutNumbers(const std::string& path) {
  std::string out;
  for (size_t at = 0; at <= path.size();) {
    const size_t dot = std::min(path.find('.', at), path.size());
    const std::string part = path.substr(at, dot - at);
    const bool number = !part.empty() && std::ranges::all_of(part, [](unsigned char c) {
      return std::isdigit(c) != 0;
    });
    if (at > 0) out += '.';
    out += number ? "*" : part;
    at = dot + 1;
  }
  return out;
}

std::vector<PageTable> LedgerTables(const PageLedger& run) {
  const PlanReport report = BuildPlanReport(*run.ledger, {});
  std::vector<PageTable> tables = {ComponentTable(run, report), KindTable(run, report),
                                   HolderTable(run), ModuleTable(run, report),
                                   PhaseTable(run, report)};
  std::erase_if(tables, [](const PageTable& table) { return table.rows.empty(); });
  return tables;
}

}  // namespace headroom
