// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/format.h"
#include "report/fit_report.h"

namespace headroom {
namespace {

constexpr int kSizeWidth = 11;
constexpr int kTimeWidth = 10;
constexpr int kVerdictWidth = 18;

std::string Heading(const TextStyle& style, std::string_view text) {
  return '\n' + Paint(style, Colour::kBold, text) + '\n';
}

int NameWidth(const TextStyle& style) {
  return style.width - 2 * kSizeWidth - kTimeWidth - kVerdictWidth;
}

std::string Joined(const std::vector<std::string>& parts) {
  return Format("{}", fmt::join(parts, " + "));
}

std::string Title(const FitReport& report, const TextStyle& style) {
  std::string facts = Thousands(report.parameters) + " parameters";
  for (const std::string& part : report.recipe) {
    facts += std::string(Sign(style, " · ", ", ")) + part;
  }
  return Paint(style, Colour::kBold, report.model) + '\n' + Paragraph(style, "", facts);
}

std::string VerdictText(const FitReport& report, const TextStyle& style) {
  const std::string device = report.device.empty()
                                 ? FormatBytes(report.memory)
                                 : Format("{} ({})", report.device, FormatBytes(report.memory));
  const Bytes difference = report.memory - report.needed;
  const std::string verdict = report.fits
                                  ? Format("Fits {}: it needs {}, {} less.", device,
                                           FormatBytes(report.needed), FormatBytes(difference))
                                  : Format("Does not fit {}: it needs {}, {} more.", device,
                                           FormatBytes(report.needed), FormatBytes(-difference));
  return '\n' + Paint(style, report.fits ? Colour::kGreen : Colour::kRed, verdict) + '\n';
}

std::string LimitLine(const TextStyle& style, std::string_view name, const FitLimit& limit,
                      std::string_view with) {
  if (!limit.value) return Format("  {}not even 1 fits\n", PadRight(name, 11));
  std::string_view end;
  if (!limit.limited_by_memory) end = ", which is the most there is";
  return Format("  {}{}  {}{}\n", PadRight(name, 11),
                Paint(style, Colour::kBold, PadLeft(Thousands(*limit.value), 9)), with, end);
}

std::string Limits(const FitReport& report, const TextStyle& style) {
  if (!report.largest_batch && !report.largest_sequence && !report.largest_lora_rank) return "";
  std::string out = Heading(style, "Largest that fits, everything else as asked");
  if (report.largest_batch) {
    out += LimitLine(
        style, "batch", *report.largest_batch,
        report.sequence > 0 ? Format("samples of {} tokens", report.sequence) : "samples");
  }
  if (report.largest_sequence) {
    out += LimitLine(style, "sequence", *report.largest_sequence,
                     Format("tokens at batch {}", report.batch));
  }
  if (report.largest_lora_rank) {
    out += LimitLine(style, "LoRA r", *report.largest_lora_rank, "rank of the adapters");
  }
  return out;
}

std::string TimeChange(double change) {
  if (std::abs(change) < 0.005) return "same";
  return Format("{:+.0f} %", change * 100);
}

std::string ChangeLine(const FitReport& report, const FitChange& change, const TextStyle& style) {
  const int name_width = NameWidth(style) - 4;
  const std::string name = Joined(change.parts);
  std::string out = "    ";
  // Numbers of a change with a long name stand on a line of their own.
  if (DisplayWidth(name) >= name_width) {
    out += name + '\n' + std::string(static_cast<size_t>(name_width + 4), ' ');
  } else {
    out += PadRight(name, name_width);
  }
  const std::string verdict = change.fits ? Paint(style, Colour::kGreen, "fits")
                                          : "short " + FormatBytes(change.needed - report.memory);
  return out + PadLeft(FormatBytes(change.needed), kSizeWidth) +
         PadLeft(' ' + FormatBytes(change.saved), kSizeWidth) +
         PadLeft(TimeChange(change.time_change), kTimeWidth) +
         PadLeft(' ' + verdict, kVerdictWidth) + '\n';
}

// A table, its lines under what each keeps of the result.
std::string Changes(const FitReport& report, std::string_view title,
                    const std::vector<FitChange>& changes, const TextStyle& style) {
  if (changes.empty()) return "";
  std::string out = '\n' + Paint(style, Colour::kBold, PadRight(title, NameWidth(style))) +
                    Paint(style, Colour::kDim,
                          PadLeft("needs", kSizeWidth) + PadLeft("saves", kSizeWidth) +
                              PadLeft("step time", kTimeWidth)) +
                    '\n';
  std::string_view effect;
  for (const FitChange& change : changes) {
    if (change.effect != effect) out += "  " + Paint(style, Colour::kDim, change.effect) + '\n';
    effect = change.effect;
    out += ChangeLine(report, change, style);
  }
  return out;
}

// Whether the change fits by itself or together with others.
bool IsPartOfAnAnswer(const FitReport& report, const FitChange& change) {
  return change.fits || std::ranges::any_of(report.together, [&](const FitChange& together) {
           return std::ranges::find(together.parts, change.parts.front()) != together.parts.end();
         });
}

std::string Notes(const FitReport& report, const TextStyle& style) {
  std::string out;
  for (const FitChange& change : report.alone) {
    if (change.note.empty() || !IsPartOfAnAnswer(report, change)) continue;
    out += Paragraph(style, "  - ", Format("{}: {}", Joined(change.parts), change.note));
  }
  return out.empty() ? out : Heading(style, "What each is") + out;
}

std::string WithoutHelp(const FitReport& report, const TextStyle& style) {
  if (report.without_help.empty()) return "";
  std::string out = Heading(style, "Does not help");
  for (const FitWithoutHelp& without : report.without_help) {
    out += Paragraph(style, "  - ", Format("{}: {}", without.name, without.why));
  }
  return out;
}

std::string BestText(const FitReport& report, const TextStyle& style) {
  if (!report.best) {
    if (report.fits || !report.changes_tried) return "";
    return '\n' + Paint(style, Colour::kRed, "Nothing that was tried makes it fit.") + '\n';
  }
  const FitBest& best = *report.best;
  std::string out = Heading(style, "Cheapest that fits: " + Joined(best.parts));
  out += Paragraph(style, "  ", best.command);
  if (!best.environment.empty()) out += Paragraph(style, "  ", best.environment);
  if (!best.from_pretrained.empty()) {
    out += Paragraph(style, "  ", Format("from_pretrained(..., {})", best.from_pretrained));
  }
  if (!best.lora.empty()) out += Paragraph(style, "  ", best.lora);
  if (!best.training_arguments.empty()) out += Paragraph(style, "  ", best.training_arguments);
  return out;
}

std::string Assumed(const FitReport& report, const TextStyle& style) {
  std::string out = Heading(style, "Assumed");
  for (const std::string& line : report.assumptions) out += Paragraph(style, "  - ", line);
  for (const std::string& line : report.warnings) {
    out += Paragraph(style, "  ! ", line);
  }
  return out;
}

}  // namespace

std::string FitText(const FitReport& report, const TextStyle& style) {
  return Title(report, style) + VerdictText(report, style) + Limits(report, style) +
         Changes(report, "One change", report.alone, style) +
         Changes(report, "Changes together", report.together, style) + Notes(report, style) +
         WithoutHelp(report, style) + BestText(report, style) + Assumed(report, style);
}

}  // namespace headroom
