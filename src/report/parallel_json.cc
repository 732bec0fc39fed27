// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "report/lengths_report.h"
#include "report/placement_report.h"

namespace headroom {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace

std::string LengthsJson(const LengthsReport& report) {
  Json batches = Json::array();
  for (const LengthsBatch& batch : report.batches) {
    batches.push_back({{"step", batch.step},
                       {"batch", batch.samples},
                       {"seq", batch.tokens},
                       {"peak", batch.peak.count()},
                       {"reserved", batch.reserved.count()},
                       {"cached", batch.cached.count()}});
  }
  Json variants = Json::array();
  for (const LengthsVariant& variant : report.variants) {
    Json entry = {{"name", variant.name},
                  {"peak_allocated", variant.peak_allocated.count()},
                  {"peak_reserved", variant.peak_reserved.count()},
                  {"fails_at", nullptr}};
    if (variant.fails_at > 0) entry["fails_at"] = variant.fails_at;
    variants.push_back(std::move(entry));
  }
  Json failure = nullptr;
  if (report.failure) {
    failure = {{"step", report.batches.back().step},
               {"phase", report.failure->phase},
               {"module", report.failure->module},
               {"op", report.failure->op},
               {"requested", report.failure->requested.count()}};
  }
  Json json = {{"schema", 1},
               {"model", report.model},
               {"recipe", report.recipe},
               {"asked", report.asked},
               {"stopped", report.stopped},
               {"batches", std::move(batches)},
               {"peak_allocated", report.peak_allocated.count()},
               {"peak_reserved", report.peak_reserved.count()},
               {"context", report.context.count()},
               {"memory", nullptr},
               {"failure", std::move(failure)},
               {"variants", std::move(variants)},
               {"assumptions", report.assumptions}};
  if (report.memory) json["memory"] = report.memory->count();
  return Dump(json);
}

std::string PlacementJson(const PlacementReport& report) {
  Json cards = Json::array();
  for (const CardReport& card : report.cards) {
    cards.push_back({{"modules", card.modules},
                     {"weights", card.weights.count()},
                     {"kv_cache", card.kv_cache.count()},
                     {"device", card.used(report.context).count()}});
  }
  return Dump({{"schema", 1},
               {"model", report.model},
               {"recipe", report.recipe},
               {"parameters", report.parameters},
               {"weights", report.model_bytes.count()},
               {"memory", report.memory.count()},
               {"cards", std::move(cards)},
               {"fullest", report.fullest()},
               {"offloaded", report.offloaded.count()},
               {"offloaded_modules", report.offloaded_modules},
               {"fits", report.fits()},
               {"assumptions", report.assumptions}});
}

}  // namespace headroom
