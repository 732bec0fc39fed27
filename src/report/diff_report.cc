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
  // A module that a run does not have holds nothing in it.
  std::map<std::string, Change> changes;
  const auto of = [&](const std::string& path) -> Change& {
    return changes.try_emplace(path, Change{Bytes(0), Bytes(0)}).first->second;
  };
  std::set<std::string> in_a;
  bool shared = false;
  for (const ModuleBytes& module : a.modules) {
    of(module.path).a = Sum(module.bytes);
    in_a.insert(module.path);
  }
  for (const ModuleBytes& module : b.modules) {
    of(module.path).b = Sum(module.bytes);
    shared |= !module.path.empty() && in_a.contains(module.path);
  }
  std::vector<NamedChange> modules;
  if (!shared) return modules;
  for (const auto& [name, change] : changes) modules.push_back({name, change});
  std::stable_sort(modules.begin(), modules.end(), [](const NamedChange& x, const NamedChange& y) {
    return x.change.size() > y.change.size();
  });
  return modules;
}

std::string Signed(Change change) {
  if (!change.known()) return "";
  const Bytes delta = change.delta();
  if (delta == Bytes(0)) return "=";
  return (delta > Bytes(0) ? "+" : "-") + MiBNumber(Bytes(std::llabs(delta.count())));
}

std::string Words(Bytes delta) {
  return (delta > Bytes(0) ? "+" : "-") + FormatMiB(Bytes(std::llabs(delta.count())));
}

// Of the larger of the two.
std::string Relative(Change change) {
  if (change.delta() == Bytes(0)) return "";
  const double share = Share(change.size(), change.larger());
  return (change.delta() > Bytes(0) ? "+" : "-") + Percent(share, 2);
}

std::string Cell(std::optional<Bytes> size) { return size ? MiBNumber(*size) : "unknown"; }

void AddRow(TextTable& table, std::string name, Change change) {
  if (change.empty()) return;
  table.Add({std::move(name), Cell(change.a), Cell(change.b), Signed(change), Relative(change)});
}

void AddKinds(TextTable& table, const KindChanges& kinds, Bytes least) {
  std::vector<size_t> order;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i].larger() > least) order.push_back(i);
  }
  std::ranges::stable_sort(
      order, [&](size_t x, size_t y) { return kinds[x].larger() > kinds[y].larger(); });
  for (const size_t i : order) {
    AddRow(table, "    " + std::string(Name(static_cast<Kind>(i))), kinds[i]);
  }
}

std::string Components(const DiffReport& diff, const TextStyle& style) {
  TextTable table({{"MiB", Align::kLeft}, {"A"}, {"B"}, {"B - A"}, {"share"}});
  const Bytes least(diff.allocated.larger().count() / 100);
  for (int i = 0; i < kAllocatedComponentCount; ++i) {
    const auto component = static_cast<Component>(i);
    AddRow(table, std::string(Name(component)), diff.components[static_cast<size_t>(i)]);
    if (component == Component::kActivations) AddKinds(table, diff.activation_kinds, least);
    if (component == Component::kTemporaries) AddKinds(table, diff.temporary_kinds, least);
  }
  AddRow(table, "= allocated", diff.allocated);
  AddRow(table, "cache", diff.components[static_cast<size_t>(Component::kCache)]);
  AddRow(table, "= reserved", diff.reserved);
  AddRow(table, "context", diff.components[static_cast<size_t>(Component::kContext)]);
  AddRow(table, "= device", diff.device);
  return table.Text(style);
}

std::string Phases(const DiffReport& diff, const TextStyle& style) {
  if (diff.phases.empty()) return "";
  TextTable table(
      {{"step"}, {"phase", Align::kLeft}, {"peak A"}, {"peak B"}, {"B - A"}, {"at its end"}});
  size_t rows = 0;
  for (const PhaseChange& phase : diff.phases) {
    if (++rows > kMostPhases) break;
    table.Add({Thousands(phase.step), phase.name, Cell(phase.peak.a), Cell(phase.peak.b),
               Signed(phase.peak), Signed(phase.allocated)});
  }
  return Heading(style, "Phases, MiB allocated") + table.Text(style);
}

std::string Modules(const DiffReport& diff, const TextStyle& style) {
  TextTable table({{"A"}, {"B"}, {"B - A"}, {"module", Align::kLeft}});
  for (const NamedChange& module : diff.modules) {
    if (module.change.delta() == Bytes(0) || table.rows() == kMostModules) break;
    table.Add({Cell(module.change.a), Cell(module.change.b), Signed(module.change),
               module.name.empty() ? "(no module)" : module.name});
  }
  return table.empty() ? "" : Heading(style, "Modules at the peak") + table.Text(style);
}

// Of runs of which one at least is known from outside alone.
std::string WatchedVerdict(const DiffReport& diff) {
  std::string text;
  const Change device = diff.device;
  if (device.known()) {
    text =
        device.delta() == Bytes(0)
            ? Format("Both hold {} of the device at most, equal to the byte.", FormatMiB(*device.a))
            : Format("B holds {} of the device at most, {} ({}) {} than A.", FormatMiB(*device.b),
                     FormatMiB(device.size()), Percent(Share(device.size(), device.larger()), 2),
                     device.delta() > Bytes(0) ? "more" : "less");
  } else {
    const std::string_view watched = diff.a_watched() ? "A" : "B";
    const std::string_view other = diff.a_watched() ? "B" : "A";
    const Bytes outside = device.larger() - diff.reserved.larger();
    text = Format("{} holds {} of the device at most", watched, FormatMiB(device.larger()));
    text +=
        outside >= Bytes(0)
            ? Format(
                  ": {} more than the allocator of {} reserves; of one run, that is the CUDA "
                  "context and the libraries.",
                  FormatMiB(outside), other)
            : Format(", {} less than the allocator of {} reserves.", FormatMiB(-outside), other);
  }
  return text + " What a watched process holds is unknown: the driver tells its sum alone.";
}

// What each kind of run does not tell: see DiffReport.
bool TellsAllocated(const DiffRun& run) { return !run.watched; }
bool TellsKinds(const DiffRun& run) { return !run.watched && run.kinds_known; }
bool TellsDevice(const DiffRun& run) {
  return run.watched || run.report.device > run.report.reserved;
}
bool TellsContext(const DiffRun& run) { return !run.watched && TellsDevice(run); }

}  // namespace

KindChanges DiffReport::kinds() const {
  const auto sum = [](std::optional<Bytes> x, std::optional<Bytes> y) -> std::optional<Bytes> {
    if (!x || !y) return std::nullopt;
    return *x + *y;
  };
  KindChanges kinds;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const Change& x = activation_kinds[i];
    const Change& y = temporary_kinds[i];
    kinds[i] = {sum(x.a, y.a), sum(x.b, y.b)};
  }
  return kinds;
}

DiffReport BuildDiff(const DiffRun& a_run, const DiffRun& b_run) {
  const PlanReport& a = a_run.report;
  const PlanReport& b = b_run.report;
  DiffReport diff;
  diff.a = a_run.name;
  diff.b = b_run.name;
  const auto both = [&](bool (*tells)(const DiffRun&), auto size_of) {
    Change change;
    if (tells(a_run)) change.a = size_of(a);
    if (tells(b_run)) change.b = size_of(b);
    return change;
  };
  diff.allocated = both(TellsAllocated, [](const PlanReport& run) { return run.allocated; });
  diff.reserved = both(TellsAllocated, [](const PlanReport& run) { return run.reserved; });
  diff.device = both(TellsDevice, [](const PlanReport& run) { return run.device; });
  diff.a_peak = a_run.watched ? a_run.peak : PeakSentence(a.peak);
  diff.b_peak = b_run.watched ? b_run.peak : PeakSentence(b.peak);
  for (size_t i = 0; i < diff.components.size(); ++i) {
    const bool outside = static_cast<Component>(i) == Component::kContext;
    diff.components[i] = both(outside ? TellsContext : TellsAllocated,
                              [i](const PlanReport& run) { return run.peak.components[i]; });
  }
  for (size_t i = 0; i < kKindCount; ++i) {
    diff.activation_kinds[i] =
        both(TellsKinds, [i](const PlanReport& run) { return run.peak.activation_kinds[i]; });
    diff.temporary_kinds[i] =
        both(TellsKinds, [i](const PlanReport& run) { return run.peak.temporary_kinds[i]; });
  }
  diff.phases = AlignPhases(a, b);
  diff.modules = AlignModules(a.peak, b.peak);
  return diff;
}

std::optional<double> LargestDifference(const DiffReport& diff) {
  if (!diff.allocated.known()) return std::nullopt;
  Bytes largest;
  for (int i = 0; i < kAllocatedComponentCount; ++i) {
    largest = std::max(largest, diff.components[static_cast<size_t>(i)].size());
  }
  return Share(largest, diff.allocated.larger());
}

std::string DiffVerdict(const DiffReport& diff) {
  if (!diff.allocated.known()) return WatchedVerdict(diff);
  const Change total = diff.allocated;
  std::string text;
  if (total.delta() == Bytes(0)) {
    text = Format("Both peak at {}, equal to the byte", FormatMiB(*total.a));
  } else {
    text = Format("B peaks {} ({}) {} A", FormatMiB(total.size()),
                  Percent(Share(total.size(), total.larger()), 2),
                  total.delta() > Bytes(0) ? "above" : "below");
  }
  std::vector<std::pair<Bytes, std::string>> reasons;
  const Bytes least(
      static_cast<int64_t>(kSmallestReason * static_cast<double>(total.larger().count())));
  for (int i = 0; i < kAllocatedComponentCount; ++i) {
    const auto component = static_cast<Component>(i);
    const Change change = diff.components[static_cast<size_t>(i)];
    if (change.size() <= least) continue;
    std::string reason = Format("{} {}", Name(component), Words(change.delta()));
    const bool has_kinds =
        component == Component::kActivations || component == Component::kTemporaries;
    const auto& kinds =
        component == Component::kActivations ? diff.activation_kinds : diff.temporary_kinds;
    const auto most = std::max_element(kinds.begin(), kinds.end(),
                                       [](Change x, Change y) { return x.size() < y.size(); });
    if (has_kinds && most != kinds.begin() && most->size() > least) {
      reason += Format(" ({} {})", KindWords(static_cast<Kind>(most - kinds.begin())),
                       Words(most->delta()));
    }
    reasons.emplace_back(change.size(), std::move(reason));
  }
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& x, const auto& y) { return x.first > y.first; });
  std::vector<std::string> texts;
  for (auto& [size, reason] : reasons) texts.push_back(std::move(reason));
  if (texts.empty())
    return text +
           Format("; no component differs by more than {}.", Percent(*LargestDifference(diff), 2));
  return text + Format(": {}.", fmt::join(texts, ", "));
}

std::string DiffText(const DiffReport& diff, const TextStyle& style) {
  std::string out = Format("A  {}\nB  {}\n\n", diff.a, diff.b);
  out += PaintLines(style, Colour::kBold, Paragraph(style, "", DiffVerdict(diff)));
  out += '\n' + Paragraph(style, "A  ", diff.a_peak) + Paragraph(style, "B  ", diff.b_peak) + '\n';
  return out + Components(diff, style) + Phases(diff, style) + Modules(diff, style);
}

}  // namespace headroom
