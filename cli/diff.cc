// SPDX-License-Identifier: Apache-2.0
//
// headroom diff: two runs side by side.

#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "base/file.h"
#include "base/format.h"
#include "command.h"
#include "ledger/ledger_json.h"
#include "make_explain.h"
#include "observe/recording.h"
#include "output.h"
#include "recording.h"
#include "report/diff_page.h"
#include "report/diff_report.h"
#include "report/json.h"
#include "watch_report.h"

namespace headroom::cli {
namespace {

constexpr Flag kDiffFlags[] = {
    {"--model", Takes::kValue, "MODEL",
     "the model that ran, as headroom plan takes it: names the blocks of snapshots by their size"},
};
constexpr Flag kOutputFlags[] = {
    {"--json", Takes::kNothing, "", "one JSON object, sizes in bytes"},
    {"--html", Takes::kValue, "FILE", "write the comparison as a page for a browser"},
    kColorFlag,
};

const Syntax& DiffSyntax() {
  static const std::vector<FlagGroup> groups = [] {
    std::vector<FlagGroup> all = {{"Runs", kDiffFlags}, {"Output", kOutputFlags}};
    for (const FlagGroup& group : RecipeFlags()) all.push_back(group);
    return all;
  }();
  static const Syntax syntax = {
      .command = "diff",
      .summary =
          "Compares two runs by component, kind, phase and module: what grew, what shrank and "
          "why. The plan of a run against a snapshot of it is the honest error of the plan.",
      .positional = "A B",
      .positional_help =
          "each a ledger (headroom plan --ledger, headroom explain --ledger), a memory snapshot, a "
          "recording (headroom watch --json) or what plan --json and explain --json wrote; one of "
          "them may be - for standard input",
      .groups = groups,
      .examples =
          "  headroom plan gpt2 --batch 4 --seq 512 --bf16 --ledger plan.json\n"
          "  headroom diff plan.json snapshot.pickle\n"
          "  headroom diff before.pickle after.pickle --json\n",
  };
  return syntax;
}

// A side of the comparison with what it is drawn from.
struct Side {
  DiffRun run;
  std::optional<Ledger> ledger;
  std::optional<PageTimeline> timeline;
  DiffPicture Picture() { return {ledger ? &*ledger : nullptr, std::move(timeline)}; }
};

Result<Side> WatchedSide(const Recording& recording) {
  HEADROOM_ASSIGN_OR_RETURN(const observe::Recording watched,
                            observe::RecordingFromJson(recording.text, recording.name));
  const observe::DeviceRecording* device = BusiestDevice(watched);
  if (device == nullptr) {
    return Error::BadInput(
        Format("{}: the watched command held no device memory: there is nothing to compare",
               recording.name));
  }
  Side side;
  side.run = {.name = recording.name, .watched = true, .peak = PeakWords(watched, *device)};
  side.run.report.device = PeakOf(*device);
  side.timeline = TimelineOf(watched, *device);
  return side;
}

// A recording of any kind, folded as a plan is.
Result<Side> ReadSide(const std::string& path, const PlanOptions* model) {
  HEADROOM_ASSIGN_OR_RETURN(Recording recording, OpenRecording(path));
  Side side;
  side.run.name = path;
  switch (recording.kind) {
    case Recording::Kind::kLedger: {
      HEADROOM_ASSIGN_OR_RETURN(side.ledger, LedgerFromJson(recording.text, recording.name));
      side.run.report = BuildPlanReport(*side.ledger, PlanHeader());
      return side;
    }
    case Recording::Kind::kSnapshot: {
      HEADROOM_ASSIGN_OR_RETURN(
          StudiedSnapshot study,
          StudySnapshot(std::move(*recording.snapshot), recording.name, std::nullopt, model));
      side.run.report = BuildRunReport(study);
      side.ledger = std::move(study.ledger);
      return side;
    }
    case Recording::Kind::kWatch:
      return WatchedSide(recording);
    case Recording::Kind::kText: {
      HEADROOM_ASSIGN_OR_RETURN(std::optional<DiffRun> run,
                                DiffRunFromJson(recording.text, recording.name));
      if (!run) break;
      side.run = *std::move(run);
      return side;
    }
  }
  return Error::BadInput(Format(
      "{}: neither a ledger, a memory snapshot nor a recording: headroom plan MODEL --ledger FILE "
      "writes one",
      recording.name));
}

Result<std::string> Compare(const Arguments& arguments, const TextStyle& style) {
  const std::string& a = arguments.positional(0);
  const std::string& b = arguments.positional(1);
  if (b.empty()) {
    return Error::BadInput(
        "two runs are compared: write headroom diff A B, for example headroom diff plan.json "
        "snapshot.pickle");
  }
  if (a == "-" && b == "-") {
    return Error::BadInput("standard input holds one run: name a file for the other");
  }
  std::optional<PlanOptions> model;
  if (const std::optional<std::string> name = arguments.Value("--model")) {
    HEADROOM_ASSIGN_OR_RETURN(model, ReadRecipeOptions(arguments, *name));
  }
  const PlanOptions* chosen = model ? &*model : nullptr;
  HEADROOM_ASSIGN_OR_RETURN(Side first, ReadSide(a, chosen));
  HEADROOM_ASSIGN_OR_RETURN(Side second, ReadSide(b, chosen));
  const DiffReport diff = BuildDiff(first.run, second.run);
  if (const std::optional<std::string> path = arguments.Value("--html")) {
    const ReportPage page = DiffPage(diff, first.Picture(), second.Picture(), Generator());
    HEADROOM_RETURN_IF_ERROR(WriteFile(*path, HtmlReport(page)));
  }
  return arguments.Has("--json") ? DiffJson(diff) : DiffText(diff, style);
}

}  // namespace

ExitCode RunDiff(std::span<const std::string> words) {
  const Result<Arguments> arguments = ParseArguments(DiffSyntax(), words);
  if (!arguments.ok()) return Fail("diff", arguments.error());
  if (arguments->wants_help()) return Print(HelpText(DiffSyntax()));
  const Result<TextStyle> style = StyleOf(*arguments, STDOUT_FILENO, kFewestColumns);
  if (!style.ok()) return Fail("diff", style.error());
  const Result<std::string> text = Compare(*arguments, *style);
  return text.ok() ? Print(*text) : Fail("diff", text.error());
}

}  // namespace headroom::cli
