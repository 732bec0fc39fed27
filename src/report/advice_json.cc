// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/fit_report.h"
#include "report/ops_report.h"
#include "report/parameters_report.h"

namespace headroom {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFitSchema = 1;
constexpr int kOpsSchema = 1;
constexpr int kParametersSchema = 1;

// Names come from users' files and may hold anything; bad UTF-8 becomes U+FFFD.
std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

// Ten digits: more of a quotient are noise, and differ from one compiler to the next.
double Rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 9);
  return unit >= 1 ? std::round(value / unit) * unit : std::round(value * (1 / unit)) / (1 / unit);
}

Json MaybeBytes(const std::optional<Bytes>& size) {
  if (!size) return nullptr;
  return size->count();
}

Json StepJson(double seconds, double flops, double bytes) {
  return {
      {"seconds", Rounded(seconds)}, {"flops", Rounded(flops)}, {"bytes_moved", Rounded(bytes)}};
}

Json ChangeJson(const FitChange& change) {
  return {{"changes", change.parts},
          {"effect", change.effect},
          {"fits", change.fits},
          {"needed", change.needed.count()},
          {"saved", change.saved.count()},
          {"step", StepJson(change.step_seconds, change.step_flops, change.step_bytes)},
          {"time_change", Rounded(change.time_change)},
          {"note", change.note}};
}

Json ChangesJson(const std::vector<FitChange>& changes) {
  Json json = Json::array();
  for (const FitChange& change : changes) json.push_back(ChangeJson(change));
  return json;
}

Json LimitJson(const std::optional<FitLimit>& limit) {
  if (!limit) return nullptr;
  Json json = {{"value", nullptr}, {"limited_by", limit->limited_by_memory ? "memory" : "model"}};
  if (limit->value) json["value"] = *limit->value;
  return json;
}

Json BestJson(const std::optional<FitBest>& best) {
  if (!best) return nullptr;
  return {{"changes", best->parts},
          {"command", best->command},
          {"environment", best->environment},
          {"from_pretrained", best->from_pretrained},
          {"lora", best->lora},
          {"training_arguments", best->training_arguments}};
}

Json LineJson(const OpsLine& line) {
  return {{"flops", Rounded(line.flops)},
          {"bytes", Rounded(line.bytes)},
          {"intensity", Rounded(line.bytes > 0 ? line.flops / line.bytes : 0)},
          {"roofline_seconds", Rounded(line.roofline_seconds)},
          {"reached_seconds", Rounded(line.reached_seconds)},
          {"memory_bound_seconds", Rounded(line.memory_seconds)},
          {"kernels", std::llround(line.kernels)}};
}

Json Named(std::initializer_list<std::pair<const char*, std::string>> names, const OpsLine& line) {
  Json json = Json::object();
  for (const auto& [key, value] : names) json[key] = value;
  json.update(LineJson(line));
  return json;
}

}  // namespace

std::string FitJson(const FitReport& report) {
  Json json = {{"schema", kFitSchema},
               {"model", report.model},
               {"parameters", report.parameters},
               {"recipe", report.recipe},
               {"device",
                {{"gpu", report.device},
                 {"memory", report.memory.count()},
                 {"context", report.context.count()},
                 {"timed_on", report.timed_on}}},
               {"asked",
                {{"fits", report.fits},
                 {"needed", report.needed.count()},
                 {"batch", report.batch},
                 {"sequence", report.sequence},
                 {"step", StepJson(report.step_seconds, report.step_flops, report.step_bytes)}}},
               {"largest",
                {{"batch", LimitJson(report.largest_batch)},
                 {"sequence", LimitJson(report.largest_sequence)},
                 {"lora_r", LimitJson(report.largest_lora_rank)}}},
               {"alone", ChangesJson(report.alone)},
               {"together", ChangesJson(report.together)},
               {"without_help", Json::array()},
               {"best", BestJson(report.best)},
               {"assumptions", report.assumptions}};
  for (const FitWithoutHelp& without : report.without_help) {
    json["without_help"].push_back({{"change", without.name}, {"why", without.why}});
  }
  return Dump(json);
}

std::string OpsJson(const OpsReport& report) {
  Json json = {{"schema", kOpsSchema},
               {"model", report.model},
               {"parameters", report.parameters},
               {"recipe", report.recipe},
               {"gpu",
                {{"name", report.gpu},
                 {"product_flops", Rounded(report.product_flops)},
                 {"memory_bandwidth", Rounded(report.memory_bandwidth)}}},
               {"total", LineJson(report.total)},
               {"classes", Json::array()},
               {"phases", Json::array()},
               {"cells", Json::array()},
               {"largest", Json::array()},
               {"assumptions", report.assumptions}};
  for (const OpsCell& cell : report.classes) {
    json["classes"].push_back(Named({{"class", cell.op_class}}, cell.line));
  }
  for (const OpsCell& cell : report.phases) {
    json["phases"].push_back(Named({{"phase", cell.phase}}, cell.line));
  }
  for (const OpsCell& cell : report.cells) {
    json["cells"].push_back(Named({{"phase", cell.phase}, {"class", cell.op_class}}, cell.line));
  }
  for (const OpsGroup& group : report.largest) {
    json["largest"].push_back(Named({{"module", group.module},
                                     {"op", group.op},
                                     {"phase", group.phase},
                                     {"class", group.op_class}},
                                    group.line));
  }
  return Dump(json);
}

std::string ParametersJson(const ParametersReport& report) {
  Json json = {{"schema", kParametersSchema},
               {"model", report.model},
               {"activations_modelled", false},
               {"why", report.why},
               {"files", report.files},
               {"parameters", nullptr},
               {"stored", {{"bytes", report.stored_bytes.count()}, {"dtypes", Json::object()}}},
               {"known",
                {{"weights", report.weights.count()},
                 {"gradients", MaybeBytes(report.gradients)},
                 {"optimizer", MaybeBytes(report.optimizer)},
                 {"context", report.context.count()},
                 {"sum", report.known().count()}}},
               {"verdict", nullptr},
               {"assumptions", report.assumptions}};
  if (report.parameters) json["parameters"] = *report.parameters;
  for (const StoredDType& stored : report.stored) {
    json["stored"]["dtypes"][stored.dtype] = {{"tensors", stored.tensors},
                                              {"elements", stored.elements},
                                              {"bytes", stored.bytes.count()}};
  }
  if (report.memory) {
    json["verdict"] = {{"fits", report.exceeds() ? "no" : "unknown"},
                       {"gpu", report.device},
                       {"memory", report.memory->count()}};
  }
  return Dump(json);
}

}  // namespace headroom
