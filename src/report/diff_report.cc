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
    return x.change.size() > y.change.size();
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
  const double share = Share(change.size(), larger);
  return (change.delta() > Bytes(0) ? "+" : "-") + Percent(share, 2);
}

// Rows of a table of changes, in which a side may be unknown.
class ChangeRows {
 public:
  ChangeRows(bool a_known, bool b_known) : a_known_(a_known), b_known_(b_known) {}
  void Add(TextTable& table, std::string name, Change change) const {
    if (change.a == Bytes(0) && change.b == Bytes(0)) return;
    const bool both = a_known_ && b_known_;
    table.Add({std::move(name), Cell(change.a, a_known_), Cell(change.b, b_known_),
               both ? Signed(change.delta()) : "", both ? Relative(change) : ""});
  }

 private:
  static std::string Cell(Bytes size, bool known) { return known ? MiBNumber(size) : "unknown"; }
  bool a_known_;
  bool b_known_;
};

void AddKinds(TextTable& table, const std::array<Change, kKindCount>& kinds, Bytes least,
              const ChangeRows& rows) {
  std::vector<size_t> order;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (std::max(kinds[i].a, kinds[i].b) > least) order.push_back(i);
  }
  std::ranges::stable_sort(order, [&](size_t x, size_t y) {
    return std::max(kinds[x].a, kinds[x].b) > std::max(kinds[y].a, kinds[y].b);
  });
  for (const size_t i : order) {
    rows.Add(table, "    " + std::string(Name(static_cast<Kind>(i))), kinds[i]);
  }
}

std::string Components(const DiffReport& diff, const TextStyle& style) {
  TextTable table({{"MiB", Align::kLeft}, {"A"}, {"B"}, {"B - A"}, {"share"}});
  const Bytes least(std::max(diff.allocated.a, diff.allocated.b).count() / 100);
  const ChangeRows rows(!diff.a_watched, !diff.b_watched);
  for (int i = 0; i < kAllocatedComponentCount; ++i) {
    const auto component = static_cast<Component>(i);
    rows.Add(table, std::string(Name(component)), diff.components[static_cast<size_t>(i)]);
    if (component == Component::kActivations) AddKinds(table, diff.activation_kinds, least, rows);
    if (component == Component::kTemporaries) AddKinds(table, diff.temporary_kinds, least, rows);
  }
  rows.Add(table, "= allocated", diff.allocated);
  rows.Add(table, "cache", diff.components[static_cast<size_t>(Component::kCache)]);
  rows.Add(table, "= reserved", diff.reserved);
  if (diff.device) {
    rows.Add(table, "context", diff.components[static_cast<size_t>(Component::kContext)]);
    ChangeRows(true, true).Add(table, "= device", *diff.device);
  } else if (diff.outside_allocator) {
    ChangeRows(diff.a_watched, diff.b_watched).Add(table, "= device", diff.device_of_watched);
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

// Of runs of which one at least is known from outside alone.
std::string WatchedVerdict(const DiffReport& diff) {
  std::string text;
  if (diff.device) {
    const Change device = *diff.device;
    text =
        device.delta() == Bytes(0)
            ? Format("Both hold {} of the device at most, equal to the byte.", FormatMiB(device.a))
            : Format("B holds {} of the device at most, {} ({}) {} than A.", FormatMiB(device.b),
                     FormatMiB(device.size()),
                     Percent(Share(device.size(), std::max(device.a, device.b)), 2),
                     device.delta() > Bytes(0) ? "more" : "less");
  } else {
    const std::string_view watched = diff.a_watched ? "A" : "B";
    const std::string_view other = diff.a_watched ? "B" : "A";
    const Bytes outside = *diff.outside_allocator;
    text = Format("{} holds {} of the device at most", watched,
                  FormatMiB(diff.a_watched ? diff.device_of_watched.a : diff.device_of_watched.b));
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

}  // namespace

DiffReport BuildDiff(const DiffRun& a_run, const DiffRun& b_run) {
  const PlanReport& a = a_run.report;
  const PlanReport& b = b_run.report;
  DiffReport diff;
  diff.a = a_run.name;
  diff.b = b_run.name;
  diff.a_watched = a_run.watched;
  diff.b_watched = b_run.watched;
  diff.allocated = {a.allocated, b.allocated};
  diff.reserved = {a.reserved, b.reserved};
  const auto knows_device = [](const DiffRun& run) {
    return run.watched || run.report.device > run.report.reserved;
  };
  if (knows_device(a_run) && knows_device(b_run)) {
    diff.device = Change{a.device, b.device};
  } else if (a_run.watched) {
    diff.device_of_watched.a = a.device;
    diff.outside_allocator = a.device - b.reserved;
  } else if (b_run.watched) {
    diff.device_of_watched.b = b.device;
    diff.outside_allocator = b.device - a.reserved;
  }
  diff.a_peak = a_run.watched ? a_run.peak : PeakSentence(a.peak);
  diff.b_peak = b_run.watched ? b_run.peak : PeakSentence(b.peak);
  for (size_t i = 0; i < diff.components.size(); ++i) {
    diff.components[i] = {a.peak.components[i], b.peak.components[i]};
  }
  const bool kinds_known = a_run.kinds_known && b_run.kinds_known;
  for (size_t i = 0; kinds_known && i < diff.activation_kinds.size(); ++i) {
    diff.activation_kinds[i] = {a.peak.activation_kinds[i], b.peak.activation_kinds[i]};
    diff.temporary_kinds[i] = {a.peak.temporary_kinds[i], b.peak.temporary_kinds[i]};
  }
  diff.phases = AlignPhases(a, b);
  diff.modules = AlignModules(a.peak, b.peak);
  return diff;
}

std::optional<double> LargestDifference(const DiffReport& diff) {
  if (diff.a_watched || diff.b_watched) return std::nullopt;
  Bytes largest;
  for (int i = 0; i < kAllocatedComponentCount; ++i) {
    largest = std::max(largest, diff.components[static_cast<size_t>(i)].size());
  }
  return Share(largest, std::max(diff.allocated.a, diff.allocated.b));
}

std::string DiffVerdict(const DiffReport& diff) {
  if (diff.a_watched || diff.b_watched) return WatchedVerdict(diff);
  const Change total = diff.allocated;
  std::string text;
  if (total.delta() == Bytes(0)) {
    text = Format("Both peak at {}, equal to the byte", FormatMiB(total.a));
  } else {
    text = Format("B peaks {} ({}) {} A", FormatMiB(total.size()),
                  Percent(Share(total.size(), std::max(total.a, total.b)), 2),
                  total.delta() > Bytes(0) ? "above" : "below");
  }
  std::vector<std::pair<Bytes, std::string>> reasons;
  const Bytes least(static_cast<int64_t>(kSmallestReason *
                                         static_cast<double>(std::max(total.a, total.b).count())));
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
