// SPDX-License-Identifier: Apache-2.0
#include "report/json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "report/json_parts.h"

namespace headroom {
namespace {

constexpr size_t kWorstRows = 10;

Json KindsJson(const KindBytes& kinds) {
  Json json = Json::object();
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] > Bytes(0)) json[std::string(Name(static_cast<Kind>(i)))] = kinds[i].count();
  }
  return json;
}

Json ModulesJson(const PlanPeak& peak) {
  Json json = Json::object();
  for (const ModuleBytes& module : peak.modules) {
    int64_t sum = 0;
    for (const Bytes size : module.bytes) sum += size.count();
    if (sum > 0) json[module.path] = sum;
  }
  return json;
}

Json PhaseJson(const PlanPhase& phase) {
  return {{"step", phase.mark.step},
          {"name", phase.mark.name},
          {"allocated", phase.mark.allocated.count()},
          {"peak", phase.mark.peak_allocated.count()},
          {"reserved", phase.mark.reserved.count()},
          {"components", ComponentsJson(phase.components)}};
}

// JSON has no infinity: an error without a measured value to divide by is null.
Json Fraction(double error) { return std::isfinite(error) ? Json(error) : Json(nullptr); }

Json ErrorsJson(const ErrorSummary& errors) {
  return {{"exact", errors.exact},
          {"median", Fraction(errors.median)},
          {"p95", Fraction(errors.p95)},
          {"max", Fraction(errors.max)},
          {"under_1pct", errors.under_1pct}};
}

}  // namespace

// Names come from users' files and may hold anything; bad UTF-8 becomes U+FFFD.
std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

Json ComponentsJson(const ComponentBytes& components) {
  Json json = Json::object();
  for (size_t i = 0; i < components.size(); ++i) {
    json[std::string(Name(static_cast<Component>(i)))] = components[i].count();
  }
  return json;
}

Json PeakJson(const PlanPeak& peak) {
  KindBytes kinds = peak.activation_kinds;
  for (size_t i = 0; i < kinds.size(); ++i) kinds[i] += peak.temporary_kinds[i];
  return {{"allocated", peak.allocated.count()},
          {"step", peak.step},
          {"phase", peak.phase},
          {"module", peak.module},
          {"op", peak.op},
          {"components", ComponentsJson(peak.components)},
          {"kinds", KindsJson(kinds)},
          {"kinds_of",
           {{Name(Component::kActivations), KindsJson(peak.activation_kinds)},
            {Name(Component::kTemporaries), KindsJson(peak.temporary_kinds)}}},
          {"modules", ModulesJson(peak)}};
}

Json VerdictJson(const Verdict& verdict) {
  Json json = {{"fits", verdict.fits},
               {"gpu", verdict.gpu.empty() ? Json(nullptr) : Json(verdict.gpu)},
               {"memory", verdict.memory.count()},
               {"cap", verdict.cap.count()},
               {"needed", verdict.needed.count()}};
  if (verdict.fits) {
    json["headroom"] = verdict.headroom().count();
    json["retries"] = verdict.tight;
  } else {
    json["short_by"] = (-verdict.headroom()).count();
  }
  if (verdict.failure) {
    json["failure"] = {{"requested", verdict.failure->requested.count()},
                       {"phase", verdict.failure->phase},
                       {"module", verdict.failure->module},
                       {"op", verdict.failure->op}};
  }
  return json;
}

Json PhasesJson(const PlanReport& report) {
  Json json = Json::array();
  for (const PlanPhase& phase : report.phases) json.push_back(PhaseJson(phase));
  return json;
}

Json GenerationJson(const GenerationFigures& figures) {
  return {{"load_peak", figures.load_peak.count()},
          {"weights", figures.weights.count()},
          {"prefill_peak", figures.prefill_peak.count()},
          {"decode_peak", figures.decode_peak.count()},
          {"kv_cache", figures.cache.count()},
          {"kv_cache_bytes_per_token", figures.cache_per_token}};
}

std::string PlanJson(const PlanReport& report) {
  Json json = {{"schema", kPlanSchema},
               {"model", report.header.model},
               {"parameters", report.header.parameters},
               {"totals",
                {{"allocated", report.allocated.count()},
                 {"reserved", report.reserved.count()},
                 {"device", report.device.count()}}},
               {"peak", PeakJson(report.peak)},
               {"phases", PhasesJson(report)},
               {"assumptions", report.header.assumptions},
               {"verdict", nullptr}};
  if (report.generation) json["generation"] = GenerationJson(*report.generation);
  if (report.header.verdict) json["verdict"] = VerdictJson(*report.header.verdict);
  if (const std::optional<NativePlan>& native = report.header.native) {
    json["arena"] = {{"device", native->device},
                     {"size", report.reserved.count()},
                     {"lower_bound", native->lower_bound.count()},
                     {"ratio", native->Ratio(report.reserved)}};
  }
  return Dump(json);
}

// The verdict at the edge: errors of the boundary are fractions of the measured one.
Json FitJson(const FitSummary& fit) {
  if (fit.rows == 0) return nullptr;
  return {{"rows", fit.rows},
          {"false_fits", fit.false_fits},
          {"false_refusals", fit.false_refusals},
          {"boundary", {{"median", fit.boundary.median}, {"max", fit.boundary.max}}}};
}

std::string ScoreJson(const ScoreReport& report) {
  const ScoreSummary summary = Summarize(report);
  Json json = {{"rows", summary.rows},
               {"supported", summary.supported},
               {"unsupported", summary.unsupported},
               {"params_exact", summary.params_exact},
               {"after_model_exact", summary.after_model_exact},
               {"allocated", ErrorsJson(summary.allocated)},
               {"reserved", ErrorsJson(summary.reserved)},
               {"device", ErrorsJson(summary.device)},
               {"phase_allocated", ErrorsJson(summary.phase_allocated)},
               {"fit", FitJson(summary.fit)},
               {"worst", Json::array()}};
  for (const WorstComparison& worst : Worst(report, kWorstRows)) {
    json["worst"].push_back({{"id", worst.id},
                             {"what", worst.comparison.what},
                             {"measured", worst.comparison.measured},
                             {"predicted", worst.comparison.predicted}});
  }
  return Dump(json);
}

}  // namespace headroom
