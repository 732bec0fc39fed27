// SPDX-License-Identifier: Apache-2.0
//
// headroom plan: the memory of a training run before it runs.

#include <unistd.h>

#include "arguments.h"
#include "base/file.h"
#include "command.h"
#include "device.h"
#include "ledger/ledger_json.h"
#include "lengths.h"
#include "make_native.h"
#include "make_plan.h"
#include "output.h"
#include "parameters_only.h"
#include "placement.h"
#include "plan_options.h"
#include "report/html_report.h"
#include "report/json.h"
#include "report/plan_page.h"
#include "report/plan_text.h"
#include "report/snapshot_export.h"

namespace headroom::cli {
namespace {

Result<Plan> MakeAndSave(const PlanOptions& options) {
  HEADROOM_ASSIGN_OR_RETURN(Plan plan,
                            options.native ? MakeNativePlan(options) : MakePlan(options));
  if (!options.ledger_path.empty()) {
    HEADROOM_RETURN_IF_ERROR(WriteFile(options.ledger_path, ToJson(plan.ledger)));
  }
  if (!options.html_path.empty()) {
    const ReportPage page = PlanPage(plan.report, plan.ledger, Generator());
    HEADROOM_RETURN_IF_ERROR(WriteFile(options.html_path, HtmlReport(page)));
  }
  if (!options.snapshot_path.empty()) {
    HEADROOM_RETURN_IF_ERROR(WriteFile(options.snapshot_path, SnapshotPickle(plan.ledger)));
  }
  if (!options.trace_path.empty()) {
    HEADROOM_RETURN_IF_ERROR(WriteFile(options.trace_path, ChromeTrace(plan.ledger)));
  }
  return plan;
}

// And what is asked of the native engine alone.
Result<PlanOptions> ReadOptions(const Arguments& arguments) {
  HEADROOM_ASSIGN_OR_RETURN(PlanOptions options, ReadPlanOptions(arguments));
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<DeviceName> device, ReadDevice(arguments));
  if (device && !options.native) {
    return Error::BadInput("--device is of the native engine: add --engine native");
  }
  if (device) options.native_cuda = device->cuda;
  if (options.native && options.parallel.device_map) {
    return Error::Unsupported("the native engine has no --device-map: leave out --engine native");
  }
  if (options.native && !options.parallel.lengths_path.empty()) {
    return Error::Unsupported("the native engine has no --lengths: leave out --engine native");
  }
  return options;
}

ExitCode PrintParameters(const ParametersReport& report, const PlanOptions& options,
                         const TextStyle& style) {
  const ExitCode code = report.exceeds() ? ExitCode::kDoesNotFit : ExitCode::kOk;
  if (!options.json) return Print(ParametersText(report, style), code);
  for (const std::string& warning : report.warnings) Warn("plan", warning);
  return Print(ParametersJson(report), code);
}

}  // namespace

ExitCode RunPlan(std::span<const std::string> words) {
  const Result<Arguments> arguments = ParseArguments(PlanSyntax(), words);
  if (!arguments.ok()) return Fail("plan", arguments.error());
  if (arguments->wants_help()) return Print(HelpText(PlanSyntax()));
  const Result<TextStyle> style = StyleOf(*arguments, STDOUT_FILENO, kFewestColumns);
  if (!style.ok()) return Fail("plan", style.error());
  const Result<PlanOptions> options = ReadOptions(*arguments);
  if (!options.ok()) return Fail("plan", options.error());
  if (options->parallel.device_map) return RunPlacement(*options, *style);
  if (!options->parallel.lengths_path.empty()) return RunLengths(*options, *style);
  const Result<std::optional<ParametersReport>> parameters = PlanParameters(*options);
  if (!parameters.ok()) return Fail("plan", parameters.error());
  if (*parameters) return PrintParameters(**parameters, *options, *style);
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
