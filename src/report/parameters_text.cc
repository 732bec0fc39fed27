// SPDX-License-Identifier: Apache-2.0

#include "base/format.h"
#include "report/parameters_report.h"

namespace headroom {
namespace {

constexpr int kNameWidth = 26;
constexpr int kNumberWidth = 18;

std::string StoredTable(const ParametersReport& report, const TextStyle& style) {
  if (report.stored.empty()) return "";
  std::string out = '\n' +
                    Paint(style, Colour::kDim,
                          PadRight("    stored as", kNameWidth) + PadLeft("tensors", kNumberWidth) +
                              PadLeft("elements", kNumberWidth) + PadLeft("MiB", kNumberWidth)) +
                    '\n';
  for (const StoredDType& stored : report.stored) {
    out += PadRight("    " + stored.dtype, kNameWidth) +
           PadLeft(Thousands(stored.tensors), kNumberWidth) +
           PadLeft(Thousands(stored.elements), kNumberWidth) +
           PadLeft(MiBNumber(stored.bytes), kNumberWidth) + '\n';
  }
  return out;
}

std::string KnownTable(const ParametersReport& report, const TextStyle& style) {
  std::string out = '\n' +
                    Paint(style, Colour::kDim,
                          PadRight("    component", kNameWidth) + PadLeft("MiB", kNumberWidth) +
                              PadLeft("B/parameter", kNumberWidth)) +
                    '\n';
  const auto add = [&](std::string_view name, std::optional<Bytes> size) {
    if (!size) return;
    std::string each;
    if (report.parameters && *report.parameters > 0) {
      each = Format("{:.2f}",
                    static_cast<double>(size->count()) / static_cast<double>(*report.parameters));
    }
    out += PadRight(Format("    {}", name), kNameWidth) + PadLeft(MiBNumber(*size), kNumberWidth) +
           PadLeft(each, kNumberWidth) + '\n';
  };
  add("weights", report.weights);
  add("gradients", report.gradients);
  add("optimizer", report.optimizer);
  out +=
      PadRight("    context", kNameWidth) + PadLeft(MiBNumber(report.context), kNumberWidth) + '\n';
  return out +
         Paint(style, Colour::kBold,
               PadRight("    = what is known", kNameWidth) +
                   PadLeft(MiBNumber(report.known()), kNumberWidth)) +
         '\n';
}

std::string VerdictText(const ParametersReport& report, const TextStyle& style) {
  if (!report.memory) return "";
  const std::string device = report.device.empty()
                                 ? FormatBytes(*report.memory)
                                 : Format("{} ({})", report.device, FormatBytes(*report.memory));
  const Bytes rest = *report.memory - report.known();
  const std::string text =
      report.exceeds()
          ? Format("Does not fit {}: what is known alone is {} more.", device, FormatBytes(-rest))
          : Format(
                "Whether it fits {} is not known: {} are left for activations, "
                "temporaries and the allocator's cache.",
                device, FormatBytes(rest));
  return '\n' + Paint(style, report.exceeds() ? Colour::kRed : Colour::kYellow,
                      Paragraph(style, "", text));
}

}  // namespace

std::string ParametersText(const ParametersReport& report, const TextStyle& style) {
  std::string out = Paint(style, Colour::kBold, report.model) + '\n';
  out += Paragraph(style, "",
                   Format("Parameters only: {}. Stored are {} bytes of weights in {} file{}, "
                          "exactly; activations and temporaries are not modelled and come on "
                          "top.",
                          report.why, Thousands(report.stored_bytes.count()), report.files.size(),
                          report.files.size() == 1 ? "" : "s"));
  out += StoredTable(report, style) + KnownTable(report, style) + VerdictText(report, style);
  out += '\n' + Paint(style, Colour::kBold, "Assumed") + '\n';
  for (const std::string& line : report.assumptions) out += Paragraph(style, "  - ", line);
  for (const std::string& line : report.warnings) out += Paragraph(style, "  ! ", line);
  return out;
}

}  // namespace headroom
