// SPDX-License-Identifier: Apache-2.0
#include "report/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <vector>

#include "report/module_tree.h"

namespace headroom {
namespace {

constexpr int kMargin = 2;
// Kinds below this share of their component are summed as "other".
constexpr double kSmallestKind = 0.02;
constexpr size_t kMostKinds = 6;

std::string Margin() { return std::string(kMargin, ' '); }

double Share(Bytes part, Bytes whole) {
  return whole > Bytes(0) ? static_cast<double>(part.count()) / static_cast<double>(whole.count())
                          : 0;
}

// `lines` (ending in a newline) in one colour.
std::string PaintLines(const TextStyle& style, Colour colour, std::string_view lines) {
  return Paint(style, colour, lines.substr(0, lines.size() - 1)) + '\n';
}

std::string Heading(const TextStyle& style, std::string_view text) {
  return '\n' + PaintLines(style, Colour::kBold, Paragraph(style, "", text));
}

// The model's name on a line of its own, then its size and the recipe.
std::string Title(const PlanHeader& header, const TextStyle& style) {
  std::string facts = Thousands(header.parameters) + " parameters";
  if (header.trainable != header.parameters) {
    facts += " (" + Thousands(header.trainable) + " trained)";
  }
  for (const std::string& part : header.recipe) {
    facts += std::string(Sign(style, " · ", ", ")) + part;
  }
  return Paint(style, Colour::kBold, header.model) + '\n' + Paragraph(style, "", facts);
}

std::string TotalLine(const TextStyle& style, std::string_view name, Bytes size,
                      std::string_view meaning) {
  return fmt::format("{}{}{}  {}\n", Margin(), PadRight(name, 11),
                     Paint(style, Colour::kBold, PadLeft(FormatMiB(size), 13)),
                     Paint(style, Colour::kDim, meaning));
}

std::string Totals(const PlanReport& report, const TextStyle& style) {
  const Bytes cache = report.reserved - report.allocated;
  const Bytes context = report.device - report.reserved;
  return TotalLine(style, "allocated", report.allocated, "the tensors, at the peak") +
         TotalLine(style, "reserved", report.reserved,
                   fmt::format("+ {} cached by the allocator", FormatMiB(cache))) +
         TotalLine(style, "device", report.device,
                   fmt::format("+ {} CUDA context and libraries", FormatMiB(context)));
}

std::string PeakSentence(const PlanPeak& peak) {
  std::string text = "Peak";
  if (peak.step > 0) text += fmt::format(" in step {},", peak.step);
  text += peak.step > 0 ? " " : " while ";
  text += PhaseWords(peak.phase);
  if (!peak.module.empty()) text += fmt::format(", at {}", peak.module);
  if (!peak.op.empty()) text += fmt::format(" ({})", peak.op);
  return text;
}

std::string WithoutTrailingSpaces(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

// A line of the component table. Name, MiB, share and bytes per parameter end at columns 26, 38, 48
// and 62.
std::string Row(std::string_view name, Bytes size, std::string_view share,
                std::string_view per_parameter) {
  return WithoutTrailingSpaces(Margin() + PadRight(name, 24) + PadLeft(MiBNumber(size), 12) +
                               PadLeft(share, 10) + PadLeft(per_parameter, 14));
}

// The largest kinds of one component, one dim row each, the rest summed.
std::string KindRows(const TextStyle& style, const KindBytes& kinds, Bytes device) {
  struct Entry {
    Bytes size;
    std::string_view name;
  };
  std::vector<Entry> entries;
  for (size_t i = 1; i < kinds.size(); ++i)
    entries.push_back({kinds[i], Name(static_cast<Kind>(i))});
  std::ranges::stable_sort(entries, std::greater(), &Entry::size);
  Bytes total;
  for (const Bytes size : kinds) total += size;
  Bytes rest = kinds[static_cast<size_t>(Kind::kOther)];
  std::string out;
  size_t shown = 0;
  const auto add = [&](std::string_view name, Bytes size) {
    out += PaintLines(style, Colour::kDim,
                      Row("    " + std::string(name), size, Percent(Share(size, device)), ""));
  };
  for (const Entry& entry : entries) {
    if (shown < kMostKinds && Share(entry.size, total) >= kSmallestKind) {
      add(entry.name, entry.size);
      ++shown;
    } else {
      rest += entry.size;
    }
  }
  if (shown > 0 && rest > Bytes(0)) add("other", rest);
  return out;
}

std::string PerParameter(Bytes size, const PlanReport& report) {
  const auto parameters = static_cast<double>(std::max<int64_t>(1, report.header.parameters));
  return fmt::format("{:.2f}", static_cast<double>(size.count()) / parameters);
}

// Only what is allocated grows with the parameters; the other sums have no such figure.
std::string SumRow(const TextStyle& style, std::string_view name, Bytes size,
                   const PlanReport& report) {
  const std::string per = name == "allocated" ? PerParameter(size, report) : "";
  return PaintLines(style, Colour::kBold,
                    Row("= " + std::string(name), size, Percent(Share(size, report.device)), per));
}

std::string ComponentRow(const TextStyle& style, const PlanReport& report, Component component) {
  const Bytes size = report.peak.components[static_cast<size_t>(component)];
  const std::string name = ComponentMark(style, component) + " " + std::string(Name(component));
  const bool allocated = static_cast<int>(component) < kAllocatedComponentCount;
  return Row(name, size, Percent(Share(size, report.device)),
             allocated ? PerParameter(size, report) : "");
}

std::string ComponentTable(const PlanReport& report, const TextStyle& style) {
  std::string out =
      Paint(style, Colour::kDim,
            fmt::format("{}{}{}{}{}", Margin(), PadRight("component", 24), PadLeft("MiB", 12),
                        PadLeft("share", 10), PadLeft("B/parameter", 14))) +
      '\n';
  for (int i = 0; i < kAllocatedComponentCount; ++i) {
    if (report.peak.components[static_cast<size_t>(i)] == Bytes(0)) continue;
    const auto component = static_cast<Component>(i);
    out += ComponentRow(style, report, component);
    if (component == Component::kActivations) {
      out += KindRows(style, report.peak.activation_kinds, report.device);
    } else if (component == Component::kTemporaries) {
      out += KindRows(style, report.peak.temporary_kinds, report.device);
    }
  }
  out += SumRow(style, "allocated", report.allocated, report);
  out += ComponentRow(style, report, Component::kCache);
  out += SumRow(style, "reserved", report.reserved, report);
  out += ComponentRow(style, report, Component::kContext);
  return out + SumRow(style, "device", report.device, report);
}

std::string Ladder(const PlanReport& report, const TextStyle& style) {
  std::string out;
  const int bar_width = style.width - kMargin - 22 - 13 - 2;
  for (const LadderRung& rung : report.ladder) {
    const std::string bar = Bar(style, Share(rung.device, report.device), bar_width);
    out += WithoutTrailingSpaces(fmt::format("{}{}{}  {}", Margin(), PadRight(rung.name, 22),
                                             PadLeft(FormatMiB(rung.device), 13),
                                             Paint(style, Colour::kBlue, bar)));
  }
  return out;
}

// Load peak, weights, prefill, decode: what each needs in tensors.
std::string GenerationTable(const GenerationFigures& figures, const TextStyle& style) {
  const auto line = [&](std::string_view name, Bytes size, std::string_view meaning) {
    return WithoutTrailingSpaces(fmt::format("{}{}{}  {}", Margin(), PadRight(name, 16),
                                             PadLeft(FormatMiB(size), 13),
                                             Paint(style, Colour::kDim, meaning)));
  };
  return line("load peak", figures.load_peak, "while the weights come onto the device") +
         line("weights", figures.weights, "and the model's buffers, once there") +
         line("prefill peak", figures.prefill_peak, "up to the first token") +
         line("decode peak", figures.decode_peak, "from there to the last") +
         line("KV cache", figures.cache,
              fmt::format("at the end; {} B a token and sequence",
                          Thousands(figures.cache_per_token)));
}

std::string Bullets(const TextStyle& style, const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) {
    out += Paragraph(style, fmt::format("{}{} ", Margin(), Sign(style, "•", "-")), line);
  }
  return out;
}

Colour VerdictColour(const Verdict& verdict) {
  if (!verdict.fits) return Colour::kRed;
  return verdict.tight ? Colour::kYellow : Colour::kGreen;
}

// ---- Modules ----

// A column of the module table: the components it sums.
struct ModuleColumn {
  std::string_view name;
  std::vector<Component> components;
};

std::vector<ModuleColumn> ModuleColumns(const ComponentBytes& total) {
  std::vector<ModuleColumn> columns = {
      {"weights", {Component::kWeights}},
      {"grads", {Component::kGradients}},
      {"optim", {Component::kOptimizer}},
      {"activ", {Component::kActivations}},
      {"temps", {Component::kTemporaries}},
      {"other", {Component::kInputs, Component::kKvCache, Component::kWorkspace}}};
  std::erase_if(columns, [&](const ModuleColumn& column) {
    return std::ranges::all_of(column.components, [&](Component component) {
      return total[static_cast<size_t>(component)] == Bytes(0);
    });
  });
  return columns;
}

Bytes SumOf(const ComponentBytes& bytes, const std::vector<Component>& components) {
  Bytes sum;
  for (const Component component : components) sum += bytes[static_cast<size_t>(component)];
  return sum;
}

// "332.7", from a thousand on "3,284": six columns hold what a card holds.
std::string ModuleNumber(Bytes size) {
  if (size == Bytes(0)) return "";
  return size < MiB(1000) ? MiBNumber(size) : Thousands(std::llround(size.mib()));
}

class ModuleTable {
 public:
  ModuleTable(const TextStyle& style, const ComponentBytes& total)
      : style_(style), columns_(ModuleColumns(total)), name_width_(style.width) {
    columns_.insert(columns_.begin(), {"total", AllAllocated()});
    // The last line holds the largest number of every column.
    for (const ModuleColumn& column : columns_) {
      const std::string largest = ModuleNumber(SumOf(total, column.components));
      const int width = std::max({DisplayWidth(largest), DisplayWidth(column.name), 5}) + 2;
      widths_.push_back(width);
      name_width_ -= width;
    }
  }

  std::string Header() const {
    std::string line = PadRight("  MiB", name_width_);
    for (size_t i = 0; i < columns_.size(); ++i) line += PadLeft(columns_[i].name, widths_[i]);
    return Paint(style_, Colour::kDim, line) + '\n';
  }

  std::string Line(std::string_view name, const ComponentBytes& bytes) const {
    std::string line = PadRight(Shorten(style_, name, name_width_), name_width_);
    for (size_t i = 0; i < columns_.size(); ++i) {
      line += PadLeft(ModuleNumber(SumOf(bytes, columns_[i].components)), widths_[i]);
    }
    return WithoutTrailingSpaces(line);
  }

  std::string Tree(const ModuleNode& node, int depth) const {
    std::string name(static_cast<size_t>(depth) * 2, ' ');
    name += node.name;
    if (node.count > 1) name += fmt::format(" {} {}", Sign(style_, "×", "x"), node.count);
    std::string out = Line(name, node.total);
    for (const ModuleNode& child : node.children) out += Tree(child, depth + 1);
    return out;
  }

 private:
  static std::vector<Component> AllAllocated() {
    std::vector<Component> all;
    for (int i = 0; i < kAllocatedComponentCount; ++i) all.push_back(static_cast<Component>(i));
    return all;
  }

  const TextStyle& style_;
  std::vector<ModuleColumn> columns_;
  std::vector<int> widths_;
  int name_width_ = 0;
};

}  // namespace

std::string VerdictSentence(const Verdict& verdict) {
  const std::string memory = FormatBytes(verdict.memory);
  const std::string place = verdict.gpu.empty()
                                ? fmt::format("in {}", memory)
                                : fmt::format("on the {} ({})", verdict.gpu, memory);
  if (verdict.tight) {
    return fmt::format(
        "Just fits {}, {} to spare: PyTorch has to give cached blocks back and retry.", place,
        FormatBytes(verdict.headroom()));
  }
  if (verdict.fits) {
    return fmt::format("Fits {} with {} to spare.", place, FormatBytes(verdict.headroom()));
  }
  std::string text =
      fmt::format("Does not fit {}: {} short.", place, FormatBytes(-verdict.headroom()));
  if (verdict.cap <= Bytes(0)) {
    return text + fmt::format(" CUDA context and libraries alone take {}.",
                              FormatBytes(verdict.memory - verdict.cap));
  }
  if (!verdict.failure) return text;
  text += fmt::format(" It runs out in the {} phase", verdict.failure->phase);
  if (!verdict.failure->module.empty()) text += fmt::format(" at {}", verdict.failure->module);
  return text + fmt::format(", asking for {}.", FormatBytes(verdict.failure->requested));
}

std::string ModulesText(const PlanReport& report, const TextStyle& style) {
  const ModuleNode root = BuildModuleTree(report.peak.modules);
  const ModuleTable table(style, root.total);
  std::string out = table.Header();
  for (const ModuleNode& child : root.children) out += table.Tree(child, 0);
  if (root.own != ComponentBytes{}) out += table.Line("(no module)", root.own);
  return out + PaintLines(style, Colour::kBold, table.Line("= allocated", root.total));
}

std::string PlanText(const PlanReport& report, PlanDetail detail, const TextStyle& style) {
  std::string out = Title(report.header, style) + '\n' + Totals(report, style);
  out += Heading(style, PeakSentence(report.peak));
  out += Margin() + StackedBar(style, report.peak.components, style.width - 2 * kMargin) + "\n\n";
  out += ComponentTable(report, style);
  if (detail == PlanDetail::kModules) {
    out += Heading(style, "Modules at the peak (a folded row is the sum of its layers)") +
           ModulesText(report, style);
  }
  if (report.generation) {
    out += Heading(style, "Generation, in tensors") + GenerationTable(*report.generation, style);
  }
  out += Heading(style, "Device memory over the run");
  out += Ladder(report, style);
  if (!report.header.assumptions.empty()) {
    out += Heading(style, "Assumed") + Bullets(style, report.header.assumptions);
  }
  if (!report.header.warnings.empty()) {
    out += Heading(style, "Note") + Bullets(style, report.header.warnings);
  }
  if (report.header.verdict) {
    const Verdict& verdict = *report.header.verdict;
    out += '\n' + PaintLines(style, VerdictColour(verdict),
                             Paragraph(style, "", VerdictSentence(verdict)));
  }
  return out;
}

}  // namespace headroom
