// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <optional>

#include "base/format.h"
#include "report/placement_report.h"

namespace headroom {
namespace {

struct Numbered {
  std::string prefix;  // "transformer.h."
  int number = 0;
};

// "transformer.h.11" as its list and place in it.
std::optional<Numbered> SplitNumber(const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  int number = 0;
  const char* end = path.data() + path.size();
  const auto [stop, failure] = std::from_chars(path.data() + dot + 1, end, number);
  if (failure != std::errc() || stop != end) return std::nullopt;
  return Numbered{path.substr(0, dot + 1), number};
}

std::string CardLine(const TextStyle& style, const PlacementReport& report, size_t index) {
  const CardReport& card = report.cards[index];
  const Bytes used = card.used(report.context);
  const double share = report.memory > Bytes(0) ? static_cast<double>(used.count()) /
                                                      static_cast<double>(report.memory.count())
                                                : 0;
  std::string line = "  " + PadRight(Format("card {}", index), 9) +
                     PadLeft(MiBNumber(card.weights), 12) + PadLeft(MiBNumber(card.kv_cache), 12) +
                     PadLeft(MiBNumber(used), 13) + PadLeft(Percent(share), 10);
  if (index == report.fullest()) line += "  fullest";
  const Colour colour = used > report.memory ? Colour::kRed : Colour::kPlain;
  return Paint(style, colour, line) + '\n' +
         Paragraph(style, "      ", ModulesInWords(card.modules, style));
}

std::string Heading(const TextStyle& style, std::string_view text) {
  return '\n' + Paint(style, Colour::kBold, text) + '\n';
}

std::string Outcome(const PlacementReport& report) {
  const std::string cards =
      Format("{} x {}", report.cards.size(),
             report.gpu.empty() ? FormatBytes(report.memory)
                                : Format("{} ({})", report.gpu, FormatBytes(report.memory)));
  if (report.offloaded > Bytes(0)) {
    return Format("Does not fit {}: {} of the weights go to host memory.", cards,
                  FormatBytes(report.offloaded));
  }
  const size_t fullest = report.fullest();
  const Bytes used = report.cards[fullest].used(report.context);
  if (used > report.memory) {
    return Format("Does not fit {}: card {} lacks {}.", cards, fullest,
                  FormatBytes(used - report.memory));
  }
  return Format("Fits {}: {} are left on card {}, the fullest, for activations.", cards,
                FormatBytes(report.memory - used), fullest);
}

}  // namespace

size_t PlacementReport::fullest() const {
  const auto most = std::ranges::max_element(
      cards, {}, [](const CardReport& card) { return card.weights + card.kv_cache; });
  return static_cast<size_t>(most - cards.begin());
}

bool PlacementReport::fits() const {
  return offloaded == Bytes(0) && cards[fullest()].used(context) <= memory;
}

std::string ModulesInWords(const std::vector<std::string>& paths, const TextStyle& style) {
  std::string out;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (!out.empty()) out += ", ";
    out += paths[i];
    const std::optional<Numbered> first = SplitNumber(paths[i]);
    if (!first) continue;
    size_t last = i;
    int number = first->number;
    while (last + 1 < paths.size()) {
      const std::optional<Numbered> next = SplitNumber(paths[last + 1]);
      if (!next || next->prefix != first->prefix || next->number != number + 1) break;
      ++last;
      ++number;
    }
    if (last > i) out += Format(" {} {}", Sign(style, "…", "..."), number);
    i = last;
  }
  return out.empty() ? "nothing" : out;
}

std::string PlacementText(const PlacementReport& report, const TextStyle& style) {
  std::string facts = Thousands(report.parameters) + " parameters";
  for (const std::string& part : report.recipe) {
    facts += std::string(Sign(style, " · ", ", ")) + part;
  }
  std::string out = Paint(style, Colour::kBold, report.model) + '\n' + Paragraph(style, "", facts);
  out += Format("  weights    {}\n", FormatMiB(report.model_bytes));
  std::string header = "  " + PadRight("MiB", 9) + PadLeft("weights", 12) +
                       PadLeft("KV cache", 12) + PadLeft("device", 13) + PadLeft("of card", 10);
  out += Heading(style, "Card by card") + Paint(style, Colour::kDim, header) + '\n';
  for (size_t i = 0; i < report.cards.size(); ++i) out += CardLine(style, report, i);
  if (report.offloaded > Bytes(0)) {
    out += "  " + PadRight("host", 9) + PadLeft(MiBNumber(report.offloaded), 12) + '\n' +
           Paragraph(style, "      ", ModulesInWords(report.offloaded_modules, style));
  }
  for (const auto* lines : {&report.assumptions, &report.warnings}) {
    if (lines->empty()) continue;
    out += Heading(style, lines == &report.assumptions ? "Assumed" : "Note");
    for (const std::string& line : *lines) {
      out += Paragraph(style, Format("  {} ", Sign(style, "•", "-")), line);
    }
  }
  const std::string outcome = Paragraph(style, "", Outcome(report));
  return out + '\n' +
         Paint(style, report.fits() ? Colour::kGreen : Colour::kRed,
               outcome.substr(0, outcome.size() - 1)) +
         '\n';
}

}  // namespace headroom
