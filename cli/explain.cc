// SPDX-License-Identifier: Apache-2.0
//
// headroom explain: what a run that is over did with its memory.

#include <unistd.h>

#include <charconv>
#include <vector>

#include "arguments.h"
#include "base/file.h"
#include "base/format.h"
#include "command.h"
#include "ledger/ledger_json.h"
#include "make_explain.h"
#include "make_oom.h"
#include "output.h"
#include "recording.h"
#include "report/explain_page.h"
#include "report/explain_text.h"
#include "report/json.h"

namespace headroom::cli {
namespace {

constexpr Flag kExplainFlags[] = {
    {"--model", Takes::kValue, "MODEL",
     "the model that ran, as headroom plan takes it: names blocks by their size"},
    {"--device", Takes::kValue, "N", "of a snapshot of several (default: the busiest)"},
};
constexpr Flag kOutputFlags[] = {
    {"--json", Takes::kNothing, "", "one JSON object, sizes in bytes"},
    {"--html", Takes::kValue, "FILE", "write the report as a page for a browser"},
    {"--ledger", Takes::kValue, "FILE",
     "write every allocation and free, for headroom diff (docs/ledger_format.md)"},
    kColorFlag,
};

const Syntax& ExplainSyntax() {
  static const std::vector<FlagGroup> groups = [] {
    std::vector<FlagGroup> all = {{"Recording", kExplainFlags}, {"Output", kOutputFlags}};
    for (const FlagGroup& group : RecipeFlags()) all.push_back(group);
    return all;
  }();
  static const Syntax syntax = {
      .command = "explain",
      .summary =
          "Says where the memory of a run went: from a snapshot of torch.cuda.memory."
          "_dump_snapshot (nothing in it is executed), or from the message or log of a run that "
          "ran out of memory. With MODEL and the flags of headroom plan it also says whether the "
          "plan of that run fails likewise, and which changes would have made it fit.",
      .positional = "FILE [MODEL]",
      .positional_help =
          "a snapshot (.pickle, .pickle.gz or the page of _memory_viz), or a text "
          "that holds an out-of-memory message; - reads standard input. MODEL is what --model says",
      .groups = groups,
      .examples =
          "  headroom explain snapshot.pickle\n"
          "  headroom explain snapshot.pickle.gz --model gpt2 --json\n"
          "  headroom explain snapshot.pickle.gz --html run.html\n"
          "  python train.py 2>&1 | tee log; headroom explain log gpt2 --batch 8 --bf16\n",
  };
  return syntax;
}

Result<std::optional<int>> ReadDevice(const Arguments& arguments) {
  const std::optional<std::string> text = arguments.Value("--device");
  if (!text) return std::optional<int>();
  int device = 0;
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), device);
  if (failure != std::errc() || end != text->data() + text->size() || device < 0) {
    return Error::BadInput(Format("--device {}: not a device's number: write 0", *text));
  }
  return std::optional(device);
}

// The model's name, by --model or behind the file.
Result<std::optional<std::string>> ModelName(const Arguments& arguments) {
  const std::string& second = arguments.positional(1);
  const std::optional<std::string> flag = arguments.Value("--model");
  if (second.empty()) return flag;
  if (flag && *flag != second) {
    return Error::BadInput(Format("the model is given twice: {} and --model {}", second, *flag));
  }
  return std::optional(second);
}

Result<std::string> ExplainSnapshot(Recording recording, const Arguments& arguments,
                                    const PlanOptions* model, const TextStyle& style) {
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<int> device, ReadDevice(arguments));
  HEADROOM_ASSIGN_OR_RETURN(
      const StudiedSnapshot study,
      StudySnapshot(std::move(*recording.snapshot), recording.name, device, model));
  if (const std::optional<std::string> path = arguments.Value("--ledger")) {
    HEADROOM_RETURN_IF_ERROR(WriteFile(*path, ToJson(study.ledger)));
  }
  const ExplainReport report = BuildExplainReport(study, recording.name);
  if (const std::optional<std::string> path = arguments.Value("--html")) {
    const ReportPage page = ExplainPage(report, study.ledger, Generator());
    HEADROOM_RETURN_IF_ERROR(WriteFile(*path, HtmlReport(page)));
  }
  return arguments.Has("--json") ? ExplainJson(report) : ExplainText(report, style);
}

Result<std::string> Explain(const Arguments& arguments, const TextStyle& style) {
  if (arguments.positional().empty()) {
    return Error::BadInput(
        "no file: write headroom explain FILE, or headroom explain - to read standard input");
  }
  std::optional<PlanOptions> model;
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<std::string> name, ModelName(arguments));
  if (name) {
    HEADROOM_ASSIGN_OR_RETURN(model, ReadRecipeOptions(arguments, *name));
  }
  HEADROOM_ASSIGN_OR_RETURN(Recording recording, OpenRecording(arguments.positional()));
  const PlanOptions* chosen = model ? &*model : nullptr;
  switch (recording.kind) {
    case Recording::Kind::kSnapshot:
      return ExplainSnapshot(std::move(recording), arguments, chosen, style);
    case Recording::Kind::kLedger:
      return Error::BadInput(Format(
          "{}: a ledger of headroom plan: headroom diff compares it with another", recording.name));
    case Recording::Kind::kWatch:
      return Error::BadInput(
          Format("{}: a recording of headroom watch: headroom diff compares it with a plan",
                 recording.name));
    case Recording::Kind::kText:
      break;
  }
  HEADROOM_ASSIGN_OR_RETURN(const OomReport report,
                            MakeOomReport(recording.text, recording.name, chosen));
  if (const std::optional<std::string> path = arguments.Value("--html")) {
    HEADROOM_RETURN_IF_ERROR(WriteFile(*path, HtmlReport(OomPage(report, Generator()))));
  }
  return arguments.Has("--json") ? OomJson(report) : OomText(report, style);
}

}  // namespace

ExitCode RunExplain(std::span<const std::string> words) {
  const Result<Arguments> arguments = ParseArguments(ExplainSyntax(), words);
  if (!arguments.ok()) return Fail("explain", arguments.error());
  if (arguments->wants_help()) return Print(HelpText(ExplainSyntax()));
  const Result<TextStyle> style = StyleOf(*arguments, STDOUT_FILENO, kFewestColumns);
  if (!style.ok()) return Fail("explain", style.error());
  const Result<std::string> text = Explain(*arguments, *style);
  return text.ok() ? Print(*text) : Fail("explain", text.error());
}

}  // namespace headroom::cli
