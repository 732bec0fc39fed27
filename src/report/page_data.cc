// SPDX-License-Identifier: Apache-2.0
#include "report/page_data.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "report/module_tree.h"
#include "report/plan_report.h"
#include "report/timeline.h"

namespace headroom {
namespace {

using Json = nlohmann::ordered_json;

// Twice the columns of a wide screen for each of three steps.
constexpr size_t kMostPoints = 4000;
constexpr size_t kMostBlocks = 4000;
constexpr size_t kLongestName = 300;

// Sizes are multiples of this in PyTorch's allocator (kMinBlockSize of CUDACachingAllocator.cpp,
// 2.11.0); dividing by it halves the page.
constexpr int64_t kBlock = 512;

// Strings once each, under small numbers.
class Names {
 public:
  size_t Id(const std::string& text) {
    const auto [at, added] = ids_.try_emplace(text, names_.size());
    if (added) names_.push_back(text.substr(0, kLongestName));
    return at->second;
  }
  const std::vector<std::string>& all() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, size_t> ids_;
};

// Each number less the one before it.
Json Differences(const std::vector<int64_t>& numbers) {
  Json json = Json::array();
  int64_t before = 0;
  for (const int64_t number : numbers) {
    json.push_back(number - before);
    before = number;
  }
  return json;
}

Json LayerJson(const std::string& name, std::optional<Component> component,
               const std::vector<int64_t>& sizes) {
  return {{"name", name},
          {"component", component ? Json(Name(*component)) : Json(nullptr)},
          {"bytes", Differences(sizes)}};
}

int64_t UnitOf(const std::vector<TimelinePoint>& points) {
  const auto whole = [](const TimelinePoint& point) {
    return std::ranges::all_of(point.components,
                               [](Bytes size) { return size.count() % kBlock == 0; });
  };
  return std::ranges::all_of(points, whole) ? kBlock : 1;
}

// What outlives the ledger's last mark is "after the last step".
Json PhasesJson(const Ledger& ledger) {
  Json phases = Json::array();
  size_t from = 0;
  const size_t end = ledger.events().size();
  for (const PhaseMark& mark : ledger.marks()) {
    if (mark.event > from) {
      phases.push_back({from, mark.event, std::string(PhaseWords(mark.name)), mark.step});
    }
    from = mark.event;
  }
  if (end > from + 1 && !ledger.marks().empty()) {
    phases.push_back({from, end - 1, std::string(PhaseWords("")), ledger.marks().back().step});
  }
  return phases;
}

Json BlocksJson(const Ledger& ledger, Names& modules, Names& ops) {
  std::vector<int64_t> from;
  Json life = Json::array();
  Json bytes = Json::array();
  Json component = Json::array();
  Json kind = Json::array();
  Json module = Json::array();
  Json op = Json::array();
  for (const BlockLife& block : LargestBlocks(ledger, kMostBlocks)) {
    const MemoryEvent& event = ledger.events()[block.from];
    from.push_back(static_cast<int64_t>(block.from));
    // 0: to the end.
    life.push_back(block.to == ledger.events().size() ? 0 : block.to - block.from);
    bytes.push_back(event.bytes);
    component.push_back(static_cast<int>(event.component));
    kind.push_back(static_cast<int>(event.kind));
    module.push_back(modules.Id(ledger.ModulePath(event.module)));
    op.push_back(ops.Id(ledger.OpName(event.op)));
  }
  return {{"from", Differences(from)},
          {"life", life},
          {"bytes", bytes},
          {"component", component},
          {"kind", kind},
          {"module", module},
          {"op", op}};
}

Json KindNames() {
  Json names = Json::array();
  for (int i = 0; i < kKindCount; ++i) names.push_back(Name(static_cast<Kind>(i)));
  return names;
}

Json ChartOf(const PageLedger& run) {
  const Ledger& ledger = *run.ledger;
  const std::vector<TimelinePoint> points = BuildTimeline(ledger, kMostPoints);
  const int64_t unit = UnitOf(points);
  Names modules;
  Names ops;
  std::vector<int64_t> at;
  Json module = Json::array();
  Json op = Json::array();
  size_t peak = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    const MemoryEvent& event = ledger.events()[points[i].event];
    at.push_back(static_cast<int64_t>(points[i].event));
    module.push_back(modules.Id(ledger.ModulePath(event.module)));
    op.push_back(ops.Id(ledger.OpName(event.op)));
    if (points[i].event == ledger.peak_event()) peak = i;
  }
  Json layers = Json::array();
  for (int c = 0; c < kComponentCount; ++c) {
    std::vector<int64_t> sizes;
    for (const TimelinePoint& point : points) {
      sizes.push_back(point.components[static_cast<size_t>(c)].count() / unit);
    }
    if (std::ranges::all_of(sizes, [](int64_t size) { return size == 0; })) continue;
    const auto component = static_cast<Component>(c);
    layers.push_back(LayerJson(std::string(Name(component)), component, sizes));
  }
  Json blocks = BlocksJson(ledger, modules, ops);
  return {{"name", run.name},
          {"axis", "events"},
          {"unit", unit},
          {"at", Differences(at)},
          {"layers", layers},
          {"phases", PhasesJson(ledger)},
          {"peak", points.empty() ? Json(nullptr) : Json(peak)},
          {"module", module},
          {"op", op},
          {"blocks", blocks},
          {"modules", modules.all()},
          {"ops", ops.all()}};
}

Json ChartOf(const PageTimeline& timeline) {
  Json layers = Json::array();
  for (const PageTimeline::Layer& layer : timeline.layers) {
    std::vector<int64_t> sizes;
    for (const Bytes size : layer.bytes) sizes.push_back(size.count());
    layers.push_back(LayerJson(layer.name, layer.component, sizes));
  }
  Json phases = Json::array();
  for (const PageTimeline::Phase& phase : timeline.phases) {
    phases.push_back({phase.from, phase.to, phase.name, phase.step});
  }
  std::vector<int64_t> milliseconds;
  for (const double second : timeline.seconds) milliseconds.push_back(std::llround(second * 1000));
  Json peak = nullptr;
  if (!timeline.layers.empty() && !timeline.seconds.empty()) {
    const std::vector<Bytes>& lowest = timeline.layers.front().bytes;
    peak = std::ranges::max_element(lowest) - lowest.begin();
  }
  return {{"name", timeline.name},
          {"axis", "seconds"},
          {"unit", 1},
          {"at", Differences(milliseconds)},
          {"layers", layers},
          {"phases", phases},
          {"peak", peak}};
}

// {"n": name, "c": modules it stands for, "t": bytes per allocated component, "k": children}
Json NodeJson(const ModuleNode& node) {
  Json totals = Json::array();
  for (size_t i = 0; i < kAllocatedComponentCount; ++i) totals.push_back(node.total[i].count());
  Json children = Json::array();
  for (const ModuleNode& child : node.children) children.push_back(NodeJson(child));
  return {
      {"n", node.name.substr(0, kLongestName)}, {"c", node.count}, {"t", totals}, {"k", children}};
}

Json PeakOf(const PageLedger& run) {
  const PlanReport report = BuildPlanReport(*run.ledger, {});
  Json components = Json::object();
  for (size_t i = 0; i < report.peak.components.size(); ++i) {
    components[std::string(Name(static_cast<Component>(i)))] = report.peak.components[i].count();
  }
  return {{"name", run.name},
          {"allocated", report.allocated.count()},
          {"reserved", report.reserved.count()},
          {"device", report.device.count()},
          {"components", components},
          {"tree", NodeJson(BuildModuleTree(report.peak.modules))}};
}

std::string WithoutTags(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string PageData(const ReportPage& page) {
  Json components = Json::array();
  for (int i = 0; i < kComponentCount; ++i) components.push_back(Name(static_cast<Component>(i)));
  Json json = {{"format", "headroom.page"}, {"schema", 1},
               {"components", components},  {"kinds", KindNames()},
               {"limit", nullptr},          {"one_scale", page.side_by_side},
               {"charts", Json::array()},   {"peaks", Json::array()}};
  if (page.limit)
    json["limit"] = {{"name", page.limit->name}, {"bytes", page.limit->bytes.count()}};
  for (const PageLedger& run : page.ledgers) {
    json["charts"].push_back(ChartOf(run));
    json["peaks"].push_back(PeakOf(run));
  }
  for (const PageTimeline& timeline : page.timelines) json["charts"].push_back(ChartOf(timeline));
  return WithoutTags(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace headroom
