// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "base/format.h"
#include "ledger/module_path.h"
#include "report/ops_parts.h"
#include "report/ops_report.h"

namespace headroom {
namespace {

constexpr int kNameWidth = 28;
constexpr int kNumberWidth = 10;

std::string Columns(const TextStyle& style, std::string_view name) {
  std::string line = PadRight(name, kNameWidth);
  for (const std::string_view column : {"GFLOP", "GB moved", "FLOP/B", "time, ms", "share"}) {
    line += PadLeft(column, kNumberWidth);
  }
  return Paint(style, Colour::kDim, line) + '\n';
}

std::string Line(std::string_view name, const OpsLine& line, const OpsLine& total) {
  const double intensity = line.bytes > 0 ? line.flops / line.bytes : 0;
  return PadRight(name, kNameWidth) + PadLeft(ThreeDigits(line.flops / 1e9), kNumberWidth) +
         PadLeft(ThreeDigits(line.bytes / 1e9), kNumberWidth) +
         PadLeft(ThreeDigits(intensity), kNumberWidth) +
         PadLeft(ThreeDigits(line.roofline_seconds * 1e3), kNumberWidth) +
         PadLeft(Percent(Share(line.roofline_seconds, total.roofline_seconds)), kNumberWidth) +
         '\n';
}

std::string Classes(const OpsReport& report, const TextStyle& style) {
  std::string out = OpsHeading(style, "One optimizer step on the " + report.gpu);
  out += Columns(style, "  class");
  for (const OpsCell& cell : report.classes) {
    out += Line("  " + cell.op_class, cell.line, report.total);
  }
  return out + Line("  all", report.total, report.total);
}

std::string Phases(const OpsReport& report, const TextStyle& style) {
  std::string out = '\n' + Columns(style, "  phase");
  for (const OpsCell& phase : report.phases) {
    out += Line("  " + phase.phase, phase.line, report.total);
    for (const OpsCell& cell : report.cells) {
      if (cell.phase != phase.phase) continue;
      out += Line("    " + cell.op_class, cell.line, report.total);
    }
  }
  return out;
}

// What the three totals add up to, in sentences.
std::string Meaning(const OpsReport& report, const TextStyle& style) {
  const auto flops_of = [&](std::string_view phase) {
    for (const OpsCell& cell : report.phases) {
      if (cell.phase == phase) return cell.line.flops;
    }
    return 0.0;
  };
  const double forward = flops_of("forward");
  std::string out = "\n";
  if (forward > 0) {
    out += Paragraph(style, "  ",
                     Format("Backward computes {:.2f} times as much as forward.",
                            flops_of("backward") / forward));
  }
  out += Paragraph(
      style, "  ",
      Format("{} of the time is memory traffic: below {} FLOP/B the {} waits for its memory.",
             Percent(Share(report.total.memory_seconds, report.total.roofline_seconds), 0),
             ThreeDigits(report.product_flops / report.memory_bandwidth), report.gpu));
  return out + Paragraph(style, "  ",
                         Format("{} kernels; at the rates that kernels reach, {} ms.",
                                Thousands(static_cast<int64_t>(report.total.kernels + 0.5)),
                                ThreeDigits(report.total.reached_seconds * 1e3)));
}

std::string Largest(const OpsReport& report, const TextStyle& style) {
  std::string out = OpsHeading(style, "Largest, layers of a stack together");
  const int width = style.width - 3 * kNumberWidth - 12;
  out += Paint(style, Colour::kDim,
               PadRight("  module: op", width) + PadRight("phase", 12) +
                   PadLeft("FLOP/B", kNumberWidth) + PadLeft("time, ms", kNumberWidth) +
                   PadLeft("share", kNumberWidth)) +
         '\n';
  for (const OpsGroup& group : report.largest) {
    std::string_view op = group.op;
    if (op.starts_with("aten::")) op.remove_prefix(6);
    const std::string name =
        group.module.empty() ? std::string(op) : Format("{}: {}", FromStack(group.module), op);
    const double intensity = group.line.bytes > 0 ? group.line.flops / group.line.bytes : 0;
    const double share = Share(group.line.roofline_seconds, report.total.roofline_seconds);
    out += "  " + PadRight(Shorten(style, name, width - 3), width - 2) + PadRight(group.phase, 12) +
           PadLeft(ThreeDigits(intensity), kNumberWidth) +
           PadLeft(ThreeDigits(group.line.roofline_seconds * 1e3), kNumberWidth) +
           PadLeft(Percent(share), kNumberWidth) + '\n';
  }
  return out;
}

}  // namespace

std::string ThreeDigits(double value) {
  if (value >= 1000) return Thousands(static_cast<int64_t>(value + 0.5));
  return Format("{:.{}f}", value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

std::string OpsHeading(const TextStyle& style, std::string_view text) {
  return '\n' + Paint(style, Colour::kBold, text) + '\n';
}

std::string OpsTitle(const std::string& model, int64_t parameters,
                     const std::vector<std::string>& recipe, const TextStyle& style) {
  std::string facts = Thousands(parameters) + " parameters";
  for (const std::string& part : recipe) facts += std::string(Sign(style, " · ", ", ")) + part;
  return Paint(style, Colour::kBold, model) + '\n' + Paragraph(style, "", facts);
}

std::string OpsText(const OpsReport& report, const TextStyle& style) {
  std::string out = OpsTitle(report.model, report.parameters, report.recipe, style) +
                    Classes(report, style) + Phases(report, style) + Meaning(report, style) +
                    Largest(report, style);
  out += OpsHeading(style, "Assumed");
  for (const std::string& line : report.assumptions) out += Paragraph(style, "  - ", line);
  for (const std::string& line : report.warnings) out += Paragraph(style, "  ! ", line);
  return out;
}

}  // namespace headroom
