// SPDX-License-Identifier: Apache-2.0
#include "report/plan_text.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/format.h"
#include "report/module_tree.h"
#include "report/sections.h"

namespace headroom {
namespace {

constexpr int kMargin = 2;

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

std::string DeviceLine(const PlanReport& report, const TextStyle& style) {
  return TotalLine(
      style, "device", report.device,
      Format("+ {} CUDA context and libraries", FormatMiB(report.device - report.reserved)));
}

std::string Totals(const PlanReport& report, const TextStyle& style) {
  const Bytes cache = report.reserved - report.allocated;
  return TotalLine(style, "allocated", report.allocated, "the tensors, at the peak") +
         TotalLine(style, "reserved", report.reserved,
                   Format("+ {} cached by the allocator", FormatMiB(cache))) +
         DeviceLine(report, style);
}

// The arena of a native plan, and each phase: what it begins with, reaches and leaves.
std::string ArenaTotals(const PlanReport& report, const TextStyle& style) {
  const NativePlan& native = *report.header.native;
  return TotalLine(style, "planned", report.allocated, "alive at the peak") +
         TotalLine(style, "arena", report.reserved,
                   Format("one block, {:.3f} of that", native.Ratio(report.reserved))) +
         (report.device == report.reserved ? "" : DeviceLine(report, style));
}

std::string PhaseTable(const PlanReport& report, const TextStyle& style) {
  TextTable table(
      {{"  phase", TextTable::Align::kLeft}, {"before"}, {"peak"}, {"after MiB"}, {""}});
  Bytes before;
  for (const PlanPhase& phase : report.phases) {
    const PhaseMark& mark = phase.mark;
    if (mark.name == "step_end") continue;
    const bool first = mark.name == "train_begin";
    table.Add({"  " + std::string(first ? "weights and states" : PhaseWords(mark.name)),
               first ? "" : MiBNumber(before), MiBNumber(mark.peak_allocated),
               MiBNumber(mark.allocated), ""});
    before = mark.allocated;
  }
  return table.Text(style);
}

std::string Ladder(const PlanReport& report, const TextStyle& style) {
  std::string out;
  const int bar_width = style.width - kMargin - 22 - 13 - 2;
  for (const LadderRung& rung : report.ladder) {
    const std::string bar = Bar(style, Share(rung.device, report.device), bar_width);
    out += WithoutTrailingSpaces(Format("{}{}{}  {}", Margin(), PadRight(rung.name, 22),
                                        PadLeft(FormatMiB(rung.device), 13),
                                        Paint(style, Colour::kBlue, bar)));
  }
  return out;
}

// Load peak, weights, prefill, decode: what each needs in tensors.
std::string GenerationTable(const GenerationFigures& figures, const TextStyle& style) {
  const auto line = [&](std::string_view name, Bytes size, std::string_view meaning) {
    return MeaningLine(style, Margin() + PadRight(name, 16) + PadLeft(FormatMiB(size), 13),
                       meaning);
  };
  return line("load peak", figures.load_peak, "while the weights come onto the device") +
         line("weights", figures.weights, "and the model's buffers, once there") +
         line("prefill peak", figures.prefill_peak, "up to the first token") +
         line("decode peak", figures.decode_peak, "from there to the last") +
         line("KV cache", figures.cache,
              Format("at the end; {} B a token and sequence", Thousands(figures.cache_per_token)));
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
    // Where a name would have no room the last columns give way.
    for (; name_width_ < kNarrowestName && columns_.size() > 1; columns_.pop_back()) {
      name_width_ += widths_[columns_.size() - 1];
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
    if (node.count > 1) name += Format(" {} {}", Sign(style_, "×", "x"), node.count);
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

  static constexpr int kNarrowestName = 18;

  const TextStyle& style_;
  std::vector<ModuleColumn> columns_;
  std::vector<int> widths_;
  int name_width_ = 0;
};

}  // namespace

std::string VerdictSentence(const Verdict& verdict) {
  const std::string memory = FormatBytes(verdict.memory);
  const std::string place =
      verdict.gpu.empty() ? Format("in {}", memory) : Format("on the {} ({})", verdict.gpu, memory);
  if (verdict.tight) {
    return Format("Just fits {}, {} to spare: PyTorch has to give cached blocks back and retry.",
                  place, FormatBytes(verdict.headroom()));
  }
  if (verdict.fits) {
    return Format("Fits {} with {} to spare.", place, FormatBytes(verdict.headroom()));
  }
  std::string text = Format("Does not fit {}: {} short.", place, FormatBytes(-verdict.headroom()));
  if (verdict.cap <= Bytes(0)) {
    return text + Format(" CUDA context and libraries alone take {}.",
                         FormatBytes(verdict.memory - verdict.cap));
  }
  if (!verdict.failure) return text;
  text += Format(" It runs out in the {} phase", verdict.failure->phase);
  if (!verdict.failure->module.empty()) text += Format(" at {}", verdict.failure->module);
  return text + Format(", asking for {}.", FormatBytes(verdict.failure->requested));
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
  const bool native = report.header.native.has_value();
  std::string out = Title(report.header, style) + '\n' +
                    (native ? ArenaTotals(report, style) : Totals(report, style));
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
  out += native ? Heading(style, "A step, phase by phase") + PhaseTable(report, style)
                : Heading(style, "Device memory over the run") + Ladder(report, style);
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
