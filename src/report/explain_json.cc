// SPDX-License-Identifier: Apache-2.0
//
// Recordings, messages and comparisons as JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/json.h"
#include "report/json_parts.h"

namespace headroom {
namespace {

constexpr size_t kMostHolders = 100;

Json HoldersJson(const std::vector<HolderRow>& holders) {
  Json json = Json::array();
  for (size_t i = 0; i < std::min(kMostHolders, holders.size()); ++i) {
    const HolderRow& row = holders[i];
    json.push_back({{"bytes", row.bytes.count()},
                    {"blocks", row.blocks},
                    {"component", Name(row.component)},
                    {"kind", Name(row.kind)},
                    {"place", row.place}});
  }
  return json;
}

Json StepsJson(const std::vector<StepRow>& steps) {
  Json json = Json::array();
  for (const StepRow& row : steps) {
    json.push_back({{"step", row.step},
                    {"forward", row.forward.count()},
                    {"backward", row.backward.count()},
                    {"optimizer", row.optimizer.count()},
                    {"end", row.end.count()},
                    {"reserved", row.reserved.count()}});
  }
  return json;
}

Json FinalJson(const FinalMemory& end) {
  return {{"allocated", end.allocated.count()},
          {"requested", end.requested.count()},
          {"reserved", end.reserved.count()},
          {"pending_free", end.pending_free.count()},
          {"largest_free", end.largest_free.count()},
          {"releasable", end.releasable.count()},
          {"components", ComponentsJson(end.components)},
          {"holders", HoldersJson(end.holders)}};
}

Json FailureJson(const FailureReport& failure) {
  return {{"requested", failure.requested.count()},
          {"device_free", failure.device_free.count()},
          {"allocated", failure.allocated.count()},
          {"reserved", failure.reserved.count()},
          {"step", failure.step},
          {"phase", failure.phase},
          {"place", failure.place},
          {"component", Name(failure.component)},
          {"kind", Name(failure.kind)},
          {"holders", HoldersJson(failure.holders)}};
}

Json AllocatorsJson(const std::vector<AllocatorTrial>& trials) {
  Json json = Json::array();
  for (const AllocatorTrial& trial : trials) {
    json.push_back({{"name", trial.name}, {"reserved", trial.reserved.count()}});
    if (trial.serves) json.back()["serves"] = *trial.serves;
  }
  return json;
}

Json GrowthJson(const std::vector<GrowthRow>& growth) {
  Json json = Json::array();
  for (const GrowthRow& row : growth) {
    json.push_back({{"bytes_per_step", row.per_step.count()},
                    {"steps", row.steps},
                    {"component", Name(row.component)},
                    {"place", row.place}});
  }
  return json;
}

Json RemediesJson(const ExplainReport& report) {
  Json json = Json::array();
  for (const Remedy& remedy : FindRemedies(report)) {
    json.push_back(
        {{"saves", remedy.saves.count()}, {"part", remedy.part}, {"change", remedy.change}});
  }
  return json;
}

Json OffersJson(const FitReport& offers) {
  Json json = {{"changes", Json::array()}, {"best", nullptr}, {"largest_batch", nullptr}};
  for (const auto* list : {&offers.alone, &offers.together}) {
    for (const FitChange& change : *list) {
      json["changes"].push_back({{"parts", change.parts},
                                 {"effect", change.effect},
                                 {"needed", change.needed.count()},
                                 {"saved", change.saved.count()},
                                 {"fits", change.fits}});
    }
  }
  if (offers.best) {
    json["best"] = {{"changes", offers.best->parts}, {"command", offers.best->command}};
  }
  if (offers.largest_batch && offers.largest_batch->value) {
    json["largest_batch"] = *offers.largest_batch->value;
  }
  return json;
}

// What a side does not tell is null.
Json ChangeJson(Change change) {
  const auto size = [](std::optional<Bytes> bytes) {
    return bytes ? Json(bytes->count()) : Json(nullptr);
  };
  return {{"a", size(change.a)},
          {"b", size(change.b)},
          {"delta", change.known() ? Json(change.delta().count()) : Json(nullptr)}};
}

}  // namespace

std::string ExplainJson(const ExplainReport& report) {
  const PlanReport& run = report.run;
  const bool named = run.header.parameters > 0;
  const Json json = {{"schema", kPlanSchema},
                     {"file", report.name},
                     {"model", named ? Json(run.header.model) : Json(nullptr)},
                     {"parameters", named ? Json(run.header.parameters) : Json(nullptr)},
                     {"summary", VerdictSentences(report)},
                     {"totals",
                      {{"allocated", run.allocated.count()},
                       {"reserved", run.reserved.count()},
                       {"device", nullptr}}},
                     {"peak", PeakJson(run.peak)},
                     {"unexplained", report.unexplained.count()},
                     {"requested",
                      {{"peak", ComponentsJson(report.requested_at_peak)},
                       {"after_backward", ComponentsJson(report.requested_after_backward)},
                       {"final", ComponentsJson(report.requested_at_end)}}},
                     {"phases", PhasesJson(run)},
                     {"steps", StepsJson(report.steps)},
                     {"holders", HoldersJson(report.holders)},
                     {"growth", GrowthJson(report.growth)},
                     {"final", FinalJson(report.final_memory)},
                     {"allocators", AllocatorsJson(report.trials)},
                     {"failure", report.failure ? FailureJson(*report.failure) : Json(nullptr)},
                     {"remedies", RemediesJson(report)},
                     {"assumptions", report.notes},
                     {"verdict", nullptr}};
  return Dump(json);
}

std::string OomJson(const OomReport& report) {
  const auto size = [](const std::optional<Bytes>& bytes) {
    return bytes ? Json(bytes->count()) : Json(nullptr);
  };
  Json json = {{"schema", kPlanSchema},
               {"file", report.name},
               {"message", report.message},
               {"wording", report.wording},
               {"occurrences", report.occurrences},
               {"summary", {OomVerdict(report)}},
               {"totals",
                {{"allocated", size(report.allocated)},
                 {"reserved", size(report.reserved)},
                 {"device", size(report.process)}}},
               {"requested", size(report.requested)},
               {"cache", size(report.cache)},
               {"context", size(report.context)},
               {"others", size(report.others)},
               {"free", size(report.free)},
               {"capacity", size(report.capacity)},
               {"allowed", size(report.allowed)},
               {"processes", Json::array()},
               {"phase", report.phase},
               {"place", report.place},
               {"kind", Name(report.kind)},
               {"next", report.next},
               {"plan", nullptr}};
  for (const auto& [pid, bytes] : report.processes) {
    json["processes"].push_back({{"pid", pid}, {"bytes", bytes.count()}});
  }
  if (report.plan) {
    json["plan"] = {{"model", report.plan->model},
                    {"allocated", report.plan->allocated.count()},
                    {"reserved", report.plan->reserved.count()},
                    {"verdict", VerdictJson(report.plan->verdict)},
                    {"same_phase", report.plan->same_phase},
                    {"same_request", report.plan->same_request},
                    {"fit", report.plan->offers ? OffersJson(*report.plan->offers) : Json()}};
  }
  return Dump(json);
}

std::string DiffJson(const DiffReport& diff) {
  const std::optional<double> largest = LargestDifference(diff);
  Json json = {{"schema", kPlanSchema},
               {"a", diff.a},
               {"b", diff.b},
               {"summary", {DiffVerdict(diff)}},
               {"largest_difference", largest ? Json(*largest) : Json(nullptr)},
               {"totals",
                {{"allocated", ChangeJson(diff.allocated)},
                 {"reserved", ChangeJson(diff.reserved)},
                 {"device", ChangeJson(diff.device)}}},
               {"components", Json::object()},
               {"kinds", Json::object()},
               {"phases", Json::array()},
               {"modules", Json::array()}};
  for (size_t i = 0; i < diff.components.size(); ++i) {
    json["components"][std::string(Name(static_cast<Component>(i)))] =
        ChangeJson(diff.components[i]);
  }
  const KindChanges kinds = diff.kinds();
  for (size_t i = 0; i < kinds.size(); ++i) {
    json["kinds"][std::string(Name(static_cast<Kind>(i)))] = ChangeJson(kinds[i]);
  }
  for (const PhaseChange& phase : diff.phases) {
    json["phases"].push_back({{"step", phase.step},
                              {"name", phase.name},
                              {"allocated", ChangeJson(phase.allocated)},
                              {"peak", ChangeJson(phase.peak)}});
  }
  for (const NamedChange& module : diff.modules) {
    if (module.change.delta() == Bytes(0)) break;
    Json row = ChangeJson(module.change);
    row["module"] = module.name;
    json["modules"].push_back(std::move(row));
  }
  return Dump(json);
}

}  // namespace headroom
