// SPDX-License-Identifier: Apache-2.0
#include "report/diff_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/format.h"
#include "report/explain_report.h"
#include "report/sections.h"

namespace headroom {
namespace {

using Align = TextTable::Align;

constexpr size_t kMostModules = 12;
constexpr size_t kMostPhases = 24;
// Differences below this share of the peak are no reason.
constexpr double kSmallestReason = 0.005;

Bytes Sum(const ComponentBytes& bytes) {
  Bytes sum;
  for (const Bytes part : bytes) sum += part;
  return sum;
}

Bytes Size(Change change) { return Bytes(std::llabs(change.delta().count())); }

// Marks of one name may come several times a step, under accumulation: they are counted.
using PhaseKey = std::tuple<int, std::string, int>;

std::map<PhaseKey, const PhaseMark*> PhasesByKey(const PlanReport& report) {
  std::map<PhaseKey, const PhaseMark*> phases;
  std::map<std::pair<int, std::string>, int> seen;
  for (const PlanPhase& phase : report.phases) {
    const int count = seen[{phase.mark.step, phase.mark.name}]++;
    phases[{phase.mark.step, phase.mark.name, count}] = &phase.mark;
  }
  return phases;
}

std::vector<PhaseChange> AlignPhases(const PlanReport& a, const PlanReport& b) {
  const std::map<PhaseKey, const PhaseMark*> in_b = PhasesByKey(b);
  std::map<std::pair<int, std::string>, int> seen;
  std::vector<PhaseChange> phases;
  for (const PlanPhase& phase : a.phases) {
    const PhaseMark& mark = phase.mark;
    const int count = seen[{mark.step, mark.name}]++;
    const auto found = in_b.find({mark.step, mark.name, count});
    if (found == in_b.end()) continue;
    const PhaseMark& other = *found->second;
    phases.push_back({mark.step,
                      mark.name,
                      {mark.allocated, other.allocated},
                      {mark.peak_allocated, other.peak_allocated}});
  }
  return phases;
}

std::vector<NamedChange> AlignModules(const PlanPeak& a, const PlanPeak& b) {
  std::map<std::string, Change> changes;
  std::set<std::string> in_a;
  bool shared = false;
  for (const ModuleBytes& module : a.modules) {
    changes[module.path].a = Sum(module.bytes);
    in_a.insert(module.path);
  }
  for (const ModuleBytes& module : b.modules) {
    changes[module.path].b = Sum(module.bytes);
    shared |= !module.path.empty() && in_a.contains(module.path);
  }
  std::vector<NamedChange> modules;
  if (!shared) return modules;
  for (const auto& [name, change] : changes) modules.push_back({name, change});
  std::stable_sort(modules.begin(), modules.end(), [](const NamedChange& x, const NamedChange& y) {
    return Size(x.change) > Size(y.change);
  });
  return modules;
}

std::string Signed(Bytes delta) {
  if (delta == Bytes(0)) return "=";
  return (delta > Bytes(0) ? "+" : "-") + MiBNumber(Bytes(std::llabs(delta.count())));
}

std::string Words(Bytes delta) {
  return (delta > Bytes(0) ? "+" : "-") + FormatMiB(Bytes(std::llabs(delta.count())));
}

// Of the larger of the two.
std::string Relative(Change change) {
  const Bytes larger = std::max(change.a, change.b);
  if (change.delta() == Bytes(0)) return "";
  const double share = Share(Size(change), larger);
  return (change.delta() > Bytes(0) ? "+" : "-") + Percent(share, 2);
}

void AddRow(TextTable& table, std::string name, Change change) {
  if (change.a == Bytes(0) && change.b == Bytes(0)) return;
  table.Add({std::move(name), MiBNumber(change.a), MiBNumber(change.b), Signed(change.delta()),
             Relative(change)});
}

void AddKinds(TextTable& table, const std::array<Change, kKindCount>& kinds, Bytes least) {
  std::vector<size_t> order;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (std::max(kinds[i].a, kinds[i].b) > least) order.push_back(i);
  }
  std::ranges::stable_sort(order, [&](size_t x, size_t y) {
    return std::max(kinds[x].a, kinds[x].b) > std::max(kinds[y].a, kinds[y].b);
  });
  for (const size_t i : order) {
    AddRow(table, "    " + std::string(Name(static_cast<Kind>(i))), kinds[i]);
  }
}

std::string Components(const DiffReport& diff, const TextStyle& style) {
  TextTable table({{"MiB", Align::kLeft}, {"A"}, {"B"}, {"B - A"}, {"share"}});
  const Bytes least(std::max(diff.allocated.a, diff.allocated.b).count() / 100);
  for (int i = 0; i < kAllocatedComponentCount; ++i) {
    const auto component = static_cast<Component>(i);
    AddRow(table, std::string(Name(component)), diff.components[static_cast<size_t>(i)]);
    if (component == Component::kActivations) AddKinds(table, diff.activation_kinds, least);
    if (component == Component::kTemporaries) AddKinds(table, diff.temporary_kinds, least);
  }
  AddRow(table, "= allocated", diff.allocated);
  AddRow(table, "cache", diff.components[static_cast<size_t>(Component::kCache)]);
  AddRow(table, "= reserved", diff.reserved);
  if (diff.device) {
    AddRow(table, "context", diff.components[static_cast<size_t>(Component::kContext)]);
    AddRow(table, "= device", *diff.device);
  }
  return table.Text(style);
}

std::string Phases(const DiffReport& diff, const TextStyle& style) {
  if (diff.phases.empty()) return "";
  TextTable table(
      {{"step"}, {"phase", Align::kLeft}, {"peak A"}, {"peak B"}, {"B - A"}, {"at its end"}});
  size_t rows = 0;
  for (const PhaseChange& phase : diff.phases) {
    if (++rows > kMostPhases) break;
    table.Add({Thousands(phase.step), phase.name, MiBNumber(phase.peak.a), MiBNumber(phase.peak.b),
               Signed(phase.peak.delta()), Signed(phase.allocated.delta())});
  }
  return Heading(style, "Phases, MiB allocated") + table.Text(style);
}

std::string Modules(const DiffReport& diff, const TextStyle& style) {
  TextTable table({{"A"}, {"B"}, {"B - A"}, {"module", Align::kLeft}});
  for (const NamedChange& module : diff.modules) {
    if (module.change.delta() == Bytes(0) || table.rows() == kMostModules) break;
    table.Add({MiBNumber(module.change.a), MiBNumber(module.change.b),
               Signed(module.change.delta()), module.name.empty() ? "(no module)" : module.name});
  }
  return table.empty() ? "" : Heading(style, "Modules at the peak") + table.Text(style);
}

}  // namespace

DiffReport BuildDiff(const PlanReport& a, std::string a_name, const PlanReport& b,
                     std::string b_name) {
  DiffReport diff;
  diff.a = std::move(a_name);
  diff.b = std::move(b_name);
  diff.allocated = {a.allocated, b.allocated};
  diff.reserved = {a.reserved, b.reserved};
  if (a.device > a.reserved && b.device > b.reserved) diff.device = Change{a.device, b.device};
  diff.a_peak = PeakSentence(a.peak);
  diff.b_peak = PeakSentence(b.peak);
  for (size_t i = 0; i < diff.components.size(); ++i) {
    diff.components[i] = {a.peak.components[i], b.peak.components[i]};
  }
  for (size_t i = 0; i < diff.activation_kinds.size(); ++i) {
    diff.activation_kinds[i] = {a.peak.activation_kinds[i], b.peak.activation_kinds[i]};
    diff.temporary_kinds[i] = {a.peak.temporary_kinds[i], b.peak.temporary_kinds[i]};
  }
  diff.phases = AlignPhases(a, b);
  diff.modules = AlignModules(a.peak, b.peak);
  return diff;
}

double LargestDifference(const DiffReport& diff) {
  Bytes largest;
  for (int i = 0; i < kAllocatedComponentCount; ++i) {
    largest = std::max(largest, Size(diff.components[static_cast<size_t>(i)]));
  }
  return Share(largest, std::max(diff.allocated.a, diff.allocated.b));
}

std::string DiffVerdict(const DiffReport& diff) {
  const Change total = diff.allocated;
  std::string text;
  if (total.delta() == Bytes(0)) {
    text = Format("Both peak at {}, equal to the byte", FormatMiB(total.a));
  } else {
    text = Format("B peaks {} ({}) {} A", FormatMiB(Size(total)),
                  Percent(Share(Size(total), std::max(total.a, total.b)), 2),
                  total.delta() > Bytes(0) ? "above" : "below");
  }
  std::vector<std::pair<Bytes, std::string>> reasons;
  const Bytes least(static_cast<int64_t>(kSmallestReason *
                                         static_cast<double>(std::max(total.a, total.b).count())));
  for (int i = 0; i < kAllocatedComponentCount; ++i) {
    const auto component = static_cast<Component>(i);
    const Change change = diff.components[static_cast<size_t>(i)];
    if (Size(change) <= least) continue;
    std::string reason = Format("{} {}", Name(component), Words(change.delta()));
    const bool has_kinds =
        component == Component::kActivations || component == Component::kTemporaries;
    const auto& kinds =
        component == Component::kActivations ? diff.activation_kinds : diff.temporary_kinds;
    const auto most = std::max_element(kinds.begin(), kinds.end(),
                                       [](Change x, Change y) { return Size(x) < Size(y); });
    if (has_kinds && most != kinds.begin() && Size(*most) > least) {
      reason += Format(" ({} {})", KindWords(static_cast<Kind>(most - kinds.begin())),
                       Words(most->delta()));
    }
    reasons.emplace_back(Size(change), std::move(reason));
  }
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& x, const auto& y) { return x.first > y.first; });
  std::vector<std::string> texts;
  for (auto& [size, reason] : reasons) texts.push_back(std::move(reason));
  if (texts.empty())
    return text +
           Format("; no component differs by more than {}.", Percent(LargestDifference(diff), 2));
  return text + Format(": {}.", fmt::join(texts, ", "));
}

std::string DiffText(const DiffReport& diff, const TextStyle& style) {
  std::string out = Format("A  {}\nB  {}\n\n", diff.a, diff.b);
  out += PaintLines(style, Colour::kBold, Paragraph(style, "", DiffVerdict(diff)));
  out += '\n' + Paragraph(style, "A  ", diff.a_peak) + Paragraph(style, "B  ", diff.b_peak) + '\n';
  return out + Components(diff, style) + Phases(diff, style) + Modules(diff, style);
}

}  // namespace headroom
