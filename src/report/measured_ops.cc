// SPDX-License-Identifier: Apache-2.0
#include "report/measured_ops.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "ledger/module_path.h"
#include "report/json_parts.h"

namespace headroom {
namespace {

constexpr int kSchema = 1;
constexpr size_t kLargest = 12;

// The sums of `cells` whose key is the same, in the order in which keys are first seen.
template <typename Of>
std::vector<MeasuredCell> SumsBy(const std::vector<MeasuredOp>& ops, const Of& of) {
  std::vector<MeasuredCell> sums;
  for (const MeasuredOp& op : ops) {
    MeasuredCell key = of(op);
    auto found = std::ranges::find_if(sums, [&](const MeasuredCell& sum) {
      return sum.phase == key.phase && sum.op_class == key.op_class;
    });
    if (found == sums.end()) found = sums.insert(sums.end(), std::move(key));
    found->line += op.line;
  }
  return sums;
}

// "contraction", "normalization", "elementwise": the order of the tables of `headroom ops`.
void SortByClass(std::vector<MeasuredCell>& cells) {
  std::ranges::stable_sort(cells, {}, [](const MeasuredCell& cell) {
    return cell.op_class == "contraction" ? 0 : cell.op_class == "normalization" ? 1 : 2;
  });
}

double Rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

Json LineJson(const MeasuredOpsReport& report, const MeasuredLine& line, double whole) {
  Json json = {{"seconds", line.seconds},
               {"share", Rate(line.seconds, whole)},
               {"flops", line.flops},
               {"bytes", line.bytes},
               {"flops_per_second", Rate(line.flops, line.seconds)},
               {"bytes_per_second", Rate(line.bytes, line.seconds)},
               {"intensity", Rate(line.flops, line.bytes)},
               {"roofline_seconds", nullptr},
               {"roofline_share", nullptr},
               {"memory_bound_seconds", nullptr},
               {"ops", line.ops}};
  if (report.rates) {
    json["roofline_seconds"] = line.roofline_seconds;
    json["roofline_share"] = Rate(line.roofline_seconds, line.seconds);
    json["memory_bound_seconds"] = line.memory_seconds;
  }
  return json;
}

Json OpsJsonOf(const MeasuredOpsReport& report, const std::vector<MeasuredOp>& ops, double whole) {
  Json json = Json::array();
  for (const MeasuredOp& op : ops) {
    Json entry = {
        {"module", op.module}, {"op", op.op}, {"phase", op.phase}, {"class", op.op_class}};
    entry.update(LineJson(report, op.line, whole));
    json.push_back(std::move(entry));
  }
  return json;
}

Json DeviceJson(const MeasuredOpsReport& report) {
  Json json = {{"name", report.device},
               {"gpu", nullptr},
               {"product_flops", nullptr},
               {"memory_bandwidth", nullptr}};
  if (report.rates) {
    json["gpu"] = report.rates->gpu;
    json["product_flops"] = report.rates->product_flops;
    json["memory_bandwidth"] = report.rates->memory_bandwidth;
  }
  return json;
}

}  // namespace

MeasuredLine& MeasuredLine::operator+=(const MeasuredLine& other) {
  seconds += other.seconds;
  flops += other.flops;
  bytes += other.bytes;
  roofline_seconds += other.roofline_seconds;
  memory_seconds += other.memory_seconds;
  ops += other.ops;
  return *this;
}

std::vector<MeasuredCell> CellsOf(const MeasuredOpsReport& report) {
  std::vector<MeasuredCell> cells = SumsBy(report.ops, [](const MeasuredOp& op) {
    return MeasuredCell{op.phase, op.op_class, {}};
  });
  SortByClass(cells);
  return cells;
}

std::vector<MeasuredCell> PhasesOf(const MeasuredOpsReport& report) {
  return SumsBy(report.ops, [](const MeasuredOp& op) { return MeasuredCell{op.phase, "", {}}; });
}

std::vector<MeasuredCell> ClassesOf(const MeasuredOpsReport& report) {
  std::vector<MeasuredCell> classes = SumsBy(report.ops, [](const MeasuredOp& op) {
    return MeasuredCell{"", op.op_class, {}};
  });
  SortByClass(classes);
  return classes;
}

MeasuredLine TotalOf(const MeasuredOpsReport& report) {
  MeasuredLine total;
  for (const MeasuredOp& op : report.ops) total += op.line;
  return total;
}

std::vector<MeasuredOp> LargestOf(const MeasuredOpsReport& report, size_t count) {
  std::vector<MeasuredOp> groups;
  for (const MeasuredOp& op : report.ops) {
    MeasuredOp key = op;
    key.module = WithoutIndices(op.module);
    auto found = std::ranges::find_if(groups, [&](const MeasuredOp& group) {
      return group.module == key.module && group.op == key.op && group.phase == key.phase;
    });
    if (found == groups.end()) {
      groups.push_back(std::move(key));
    } else {
      found->line += op.line;
    }
  }
  std::ranges::stable_sort(groups, std::greater(),
                           [](const MeasuredOp& group) { return group.line.seconds; });
  if (groups.size() > count) groups.resize(count);
  return groups;
}

double BackwardOverForward(const MeasuredOpsReport& report, std::string_view without) {
  double forward = 0;
  double backward = 0;
  for (const MeasuredOp& op : report.ops) {
    if (op.op == without) continue;
    if (op.phase == "forward") forward += op.line.seconds;
    if (op.phase == "backward") backward += op.line.seconds;
  }
  return Rate(backward, forward);
}

std::string MeasuredOpsJson(const MeasuredOpsReport& report) {
  const MeasuredLine total = TotalOf(report);
  const auto cells_json = [&](const std::vector<MeasuredCell>& cells) {
    Json json = Json::array();
    for (const MeasuredCell& cell : cells) {
      Json entry;
      if (!cell.phase.empty()) entry["phase"] = cell.phase;
      if (!cell.op_class.empty()) entry["class"] = cell.op_class;
      entry.update(LineJson(report, cell.line, total.seconds));
      json.push_back(std::move(entry));
    }
    return json;
  };
  Json json = {{"schema", kSchema},
               {"model", report.model},
               {"parameters", report.parameters},
               {"recipe", report.recipe},
               {"device", DeviceJson(report)},
               {"arena_bytes", report.arena.count()},
               {"runs", report.runs},
               {"step",
                {{"op_seconds", total.seconds},
                 {"replayed_seconds", nullptr},
                 {"backward_over_forward", BackwardOverForward(report)},
                 {"backward_over_forward_without_loss", BackwardOverForward(report, kLinearLoss)}}},
               {"total", LineJson(report, total, total.seconds)},
               {"classes", cells_json(ClassesOf(report))},
               {"phases", cells_json(PhasesOf(report))},
               {"cells", cells_json(CellsOf(report))},
               {"largest", OpsJsonOf(report, LargestOf(report, kLargest), total.seconds)},
               {"ops", OpsJsonOf(report, report.ops, total.seconds)},
               {"assumptions", report.assumptions}};
  if (report.replayed_seconds) json["step"]["replayed_seconds"] = *report.replayed_seconds;
  return Dump(json);
}

}  // namespace headroom
