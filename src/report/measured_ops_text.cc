// SPDX-License-Identifier: Apache-2.0

#include <cmath>
#include <vector>

#include "base/format.h"
#include "ledger/module_path.h"
#include "report/measured_ops.h"
#include "report/ops_parts.h"

namespace headroom {
namespace {

constexpr size_t kLargestShown = 12;
constexpr int kNameWidth = 17;

struct Column {
  std::string_view name;
  int width;
};
constexpr Column kTime = {"time, ms", 9};
constexpr Column kShare = {"share", 8};
constexpr Column kFlops = {"GFLOP", 8};
constexpr Column kBytes = {"GB", 7};
constexpr Column kTeraFlops = {"TFLOP/s", 8};
constexpr Column kGigaFlops = {"GFLOP/s", 8};
constexpr Column kBandwidth = {"GB/s", 7};
constexpr Column kIntensity = {"FLOP/B", 7};
constexpr Column kRoofline = {"roofline", 9};

// What the tables of one report agree on.
struct Table {
  const TextStyle& style;
  bool tera = false;      // FLOP/s in units of 1e12
  bool roofline = false;  // has a column
  double seconds = 0;     // of all

  std::string Head(std::string_view name, int width, const std::vector<Column>& columns) const {
    std::string line = PadRight(name, width);
    for (const Column& column : columns) line += PadLeft(column.name, column.width);
    return Paint(style, Colour::kDim, line) + '\n';
  }
  std::string Head(std::string_view name) const {
    std::vector<Column> columns = {
        kTime, kShare, kFlops, kBytes, tera ? kTeraFlops : kGigaFlops, kBandwidth, kIntensity};
    if (roofline) columns.push_back(kRoofline);
    return Head(name, kNameWidth, columns);
  }
  std::string Roofline(const MeasuredLine& line) const {
    if (!roofline) return "";
    return PadLeft(Percent(Share(line.roofline_seconds, line.seconds), 0), kRoofline.width);
  }
  std::string Time(const MeasuredLine& line) const {
    return PadLeft(ThreeDigits(line.seconds * 1e3), kTime.width) +
           PadLeft(Percent(Share(line.seconds, seconds)), kShare.width);
  }
  std::string Line(std::string_view name, const MeasuredLine& line) const {
    const auto number = [](double value, const Column& column) {
      return PadLeft(ThreeDigits(value), column.width);
    };
    return PadRight(name, kNameWidth) + Time(line) + number(line.flops / 1e9, kFlops) +
           number(line.bytes / 1e9, kBytes) +
           number(Share(line.flops, line.seconds) / (tera ? 1e12 : 1e9), kTeraFlops) +
           number(Share(line.bytes, line.seconds) / 1e9, kBandwidth) +
           number(Share(line.flops, line.bytes), kIntensity) + Roofline(line) + '\n';
  }
};

std::string Classes(const MeasuredOpsReport& report, const Table& table) {
  std::string out = OpsHeading(table.style, "One optimizer step, measured on the " + report.device);
  out += table.Head("  class");
  for (const MeasuredCell& cell : ClassesOf(report)) {
    out += table.Line("  " + cell.op_class, cell.line);
  }
  return out + table.Line("  all", TotalOf(report));
}

std::string Phases(const MeasuredOpsReport& report, const Table& table) {
  std::string out = '\n' + table.Head("  phase");
  const std::vector<MeasuredCell> cells = CellsOf(report);
  for (const MeasuredCell& phase : PhasesOf(report)) {
    out += table.Line("  " + phase.phase, phase.line);
    for (const MeasuredCell& cell : cells) {
      if (cell.phase == phase.phase) out += table.Line("    " + cell.op_class, cell.line);
    }
  }
  return out;
}

// The step as it is trained beside the sum of its ops, which have gaps between them.
std::string Replayed(double replayed, double sum) {
  return Format(
      "Replayed as CUDA graphs, as in training, the step takes {} ms: {} {} than the sum of its "
      "ops.",
      ThreeDigits(replayed * 1e3), Percent(std::abs(1 - Share(replayed, sum))),
      replayed < sum ? "less" : "more");
}

// What the totals add up to, in sentences.
std::string Meaning(const MeasuredOpsReport& report, const TextStyle& style) {
  const MeasuredLine total = TotalOf(report);
  std::string out = "\n";
  const auto say = [&](const std::string& text) { out += Paragraph(style, "  ", text); };
  if (const double ratio = BackwardOverForward(report); ratio > 0) {
    const double without = BackwardOverForward(report, kLinearLoss);
    std::string text = Format("Backward takes {:.2f} times as long as forward", ratio);
    if (without != ratio) {
      text += Format(", {:.2f} times without the {}, which makes gradients in forward", without,
                     kLinearLoss);
    }
    say(text + ".");
  }
  if (report.replayed_seconds) say(Replayed(*report.replayed_seconds, total.seconds));
  if (report.rates) {
    say(
        Format("{} of the time goes to ops that the {}'s memory bounds, not its arithmetic; at the "
               "roofline all ops would take {} ms.",
               Percent(Share(total.memory_seconds, total.seconds), 0), report.rates->gpu,
               ThreeDigits(total.roofline_seconds * 1e3)));
  }
  say(Format("Medians of {} runs of {} ops, in an arena of {}.", report.runs, Thousands(total.ops),
             FormatBytes(report.arena)));
  return out;
}

std::string Largest(const MeasuredOpsReport& report, const Table& table) {
  const TextStyle& style = table.style;
  constexpr int kPhaseWidth = 10;
  const Column rate = table.tera ? kTeraFlops : kGigaFlops;
  std::vector<Column> columns = {kTime, kShare, rate};
  if (table.roofline) columns.push_back(kRoofline);
  int width = style.width - kPhaseWidth;
  for (const Column& column : columns) width -= column.width;
  std::string out = OpsHeading(style, "Largest, layers of a stack together");
  out += table.Head(PadRight("  module: op", width) + "phase", width + kPhaseWidth, columns);
  for (const MeasuredOp& group : LargestOf(report, kLargestShown)) {
    const std::string name =
        group.module.empty() ? group.op : Format("{}: {}", FromStack(group.module), group.op);
    const double speed = Share(group.line.flops, group.line.seconds) / (table.tera ? 1e12 : 1e9);
    out += "  " + PadRight(Shorten(style, name, width - 3), width - 2) +
           PadRight(group.phase, kPhaseWidth) + table.Time(group.line) +
           PadLeft(ThreeDigits(speed), rate.width) + table.Roofline(group.line) + '\n';
  }
  return out;
}

}  // namespace

std::string MeasuredOpsText(const MeasuredOpsReport& report, const TextStyle& style) {
  const MeasuredLine total = TotalOf(report);
  const Table table{.style = style,
                    .tera = Share(total.flops, total.seconds) >= 1e12,
                    .roofline = report.rates.has_value(),
                    .seconds = total.seconds};
  std::string out = OpsTitle(report.model, report.parameters, report.recipe, style) +
                    Classes(report, table) + Phases(report, table) + Meaning(report, style) +
                    Largest(report, table) + OpsHeading(style, "Assumed");
  for (const std::string& line : report.assumptions) out += Paragraph(style, "  - ", line);
  for (const std::string& line : report.warnings) out += Paragraph(style, "  ! ", line);
  return out;
}

}  // namespace headroom
