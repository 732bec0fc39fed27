// SPDX-License-Identifier: Apache-2.0
//
// headroom plan: the memory of a training run before it runs.
#include "arguments.h"
#include "base/file.h"
#include "command.h"
#include "ledger/ledger_json.h"
#include "make_plan.h"
#include "output.h"
#include "plan_options.h"
#include "report/json.h"
#include "report/plan_text.h"
#include "report/snapshot_export.h"

namespace headroom::cli {
namespace {

Result<Plan> MakeAndSave(const PlanOptions& options) {
  HEADROOM_ASSIGN_OR_RETURN(Plan plan, MakePlan(options));
  if (!options.ledger_path.empty()) {
    HEADROOM_RETURN_IF_ERROR(WriteFile(options.ledger_path, ToJson(plan.ledger)));
  }
  if (!options.snapshot_path.empty()) {
    HEADROOM_RETURN_IF_ERROR(WriteFile(options.snapshot_path, SnapshotPickle(plan.ledger)));
  }
  if (!options.trace_path.empty()) {
    HEADROOM_RETURN_IF_ERROR(WriteFile(options.trace_path, ChromeTrace(plan.ledger)));
  }
  return plan;
}

}  // namespace

ExitCode RunPlan(std::span<const std::string> words) {
  const Result<Arguments> arguments = ParseArguments(PlanSyntax(), words);
  if (!arguments.ok()) return Fail("plan", arguments.error());
  if (arguments->wants_help()) return Print(HelpText(PlanSyntax()));
  const Result<TextStyle> style = StyleOf(*arguments);
  if (!style.ok()) return Fail("plan", style.error());
  const Result<PlanOptions> options = ReadPlanOptions(*arguments);
  if (!options.ok()) return Fail("plan", options.error());
  const Result<Plan> plan = MakeAndSave(*options);
  if (!plan.ok()) return Fail("plan", plan.error());

  const PlanReport& report = plan->report;
  const bool fits = !report.header.verdict || report.header.verdict->fits;
  const ExitCode code = fits ? ExitCode::kOk : ExitCode::kDoesNotFit;
  if (!options->json) {
    const PlanDetail detail = options->by_module ? PlanDetail::kModules : PlanDetail::kSummary;
    return Print(PlanText(report, detail, *style), code);
  }
  for (const std::string& warning : report.header.warnings) Warn("plan", warning);
  return Print(PlanJson(report), code);
}

}  // namespace headroom::cli
