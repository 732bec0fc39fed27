// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "report/diff_report.h"

namespace headroom {
namespace {

using Json = nlohmann::json;

// Sums of fewer than a hundred of these do not overflow.
constexpr int64_t kMostBytes = int64_t{1} << 56;

// Takes values out of what `plan --json` wrote; remembers the first that is not what it should be.
class PlanJsonReader {
 public:
  Bytes Size(const Json& object, std::string_view key) {
    const Json* found = Find(object, key);
    if (found == nullptr || !found->is_number_integer()) return Missing(key);
    const bool huge =
        found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(kMostBytes);
    const auto bytes = huge ? int64_t{-1} : found->get<int64_t>();
    return bytes < 0 || bytes > kMostBytes ? Missing(key) : Bytes(bytes);
  }
  std::string Text(const Json& object, std::string_view key) {
    const Json* found = Find(object, key);
    if (found != nullptr && found->is_string()) return found->get<std::string>();
    Missing(key);
    return "";
  }
  int Step(const Json& object) { return static_cast<int>(Size(object, "step").count()); }

  void Components(const Json& object, ComponentBytes& components) {
    const Json& sizes = Object(object, "components");
    for (size_t i = 0; i < components.size(); ++i) {
      components[i] = Size(sizes, Name(static_cast<Component>(i)));
    }
  }
  // A value that is no object reads as an empty one.
  const Json& Object(const Json& object, std::string_view key) {
    static const Json empty = Json::object();
    const Json* found = Find(object, key);
    if (found != nullptr && found->is_object()) return *found;
    Missing(key);
    return empty;
  }
  const Json& Array(const Json& object, std::string_view key) {
    static const Json empty = Json::array();
    const Json* found = Find(object, key);
    if (found != nullptr && found->is_array()) return *found;
    Missing(key);
    return empty;
  }

  const std::string& missing() const { return missing_; }

 private:
  static const Json* Find(const Json& object, std::string_view key) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
  }
  Bytes Missing(std::string_view key) {
    if (missing_.empty()) missing_ = key;
    return Bytes(0);
  }

  std::string missing_;
};

// Kinds that are not named are not there.
void ReadKinds(PlanJsonReader& reader, const Json& kinds, Component component, KindBytes& into) {
  const Json& sizes = reader.Object(kinds, Name(component));
  for (size_t i = 0; i < into.size(); ++i) {
    const std::string_view name = Name(static_cast<Kind>(i));
    if (sizes.contains(name)) into[i] = reader.Size(sizes, name);
  }
}

void ReadModules(PlanJsonReader& reader, const Json& peak, PlanPeak& into) {
  const Json& modules = reader.Object(peak, "modules");
  for (const auto& [path, bytes] : modules.items()) {
    ModuleBytes module{.path = path};
    module.bytes[0] = reader.Size(modules, path);
    into.modules.push_back(std::move(module));
  }
}

void ReadPhases(PlanJsonReader& reader, const Json& plan, PlanReport& into) {
  for (const Json& phase : reader.Array(plan, "phases")) {
    PlanPhase read;
    read.mark.step = reader.Step(phase);
    read.mark.name = reader.Text(phase, "name");
    read.mark.allocated = reader.Size(phase, "allocated");
    read.mark.peak_allocated = reader.Size(phase, "peak");
    read.mark.reserved = reader.Size(phase, "reserved");
    reader.Components(phase, read.components);
    into.phases.push_back(std::move(read));
  }
}

}  // namespace

Result<std::optional<DiffRun>> DiffRunFromJson(std::string_view text, const std::string& name) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') return std::optional<DiffRun>();
  const Json plan = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!plan.is_object() || !plan.contains("totals") || !plan.contains("peak")) {
    return std::optional<DiffRun>();
  }
  PlanJsonReader reader;
  DiffRun run{.name = name, .kinds_known = false};
  PlanReport& report = run.report;
  const Json& totals = reader.Object(plan, "totals");
  report.allocated = reader.Size(totals, "allocated");
  report.reserved = reader.Size(totals, "reserved");
  // explain writes null: a snapshot does not tell what lies outside the allocator.
  if (!totals.contains("device") || !totals["device"].is_null()) {
    report.device = reader.Size(totals, "device");
  }
  const Json& peak = reader.Object(plan, "peak");
  report.peak.allocated = reader.Size(peak, "allocated");
  report.peak.step = reader.Step(peak);
  report.peak.phase = reader.Text(peak, "phase");
  report.peak.module = reader.Text(peak, "module");
  report.peak.op = reader.Text(peak, "op");
  reader.Components(peak, report.peak.components);
  run.kinds_known = peak.is_object() && peak.contains("kinds_of");
  if (run.kinds_known) {
    const Json& kinds = reader.Object(peak, "kinds_of");
    ReadKinds(reader, kinds, Component::kActivations, report.peak.activation_kinds);
    ReadKinds(reader, kinds, Component::kTemporaries, report.peak.temporary_kinds);
  }
  ReadModules(reader, peak, report.peak);
  ReadPhases(reader, plan, report);
  if (!reader.missing().empty()) {
    return Error::BadInput(
        Format("{}: \"{}\" is missing or of the wrong kind: headroom plan --json writes it", name,
               reader.missing()));
  }
  return std::optional<DiffRun>(std::move(run));
}

}  // namespace headroom
