// SPDX-License-Identifier: Apache-2.0
//
// headroom models: the models that `plan` knows by name.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "arguments.h"
#include "base/format.h"
#include "command.h"
#include "default_task.h"
#include "model/catalogue.h"
#include "model/config.h"
#include "model/parameter_table.h"
#include "output.h"
#include "predict/predict.h"

namespace headroom::cli {
namespace {

constexpr Flag kFlags[] = {
    {"--json", Takes::kNothing, "", "one JSON object"},
    kColorFlag,
};
constexpr FlagGroup kGroups[] = {{"Output", kFlags}};
constexpr Syntax kSyntax = {
    .command = "models",
    .summary =
        "Lists the models known by name, with the parameters of the class their config "
        "names. Any other model is planned from its config.json.",
    .positional = "",
    .positional_help = "",
    .groups = kGroups,
    .examples =
        "  headroom models\n"
        "  headroom plan openai-community/gpt2\n",
};

struct Entry {
  std::string_view name;
  std::string model_type;
  Task task = Task::kCausalLm;
  std::optional<int64_t> parameters;  // unset where the architecture has no parameter table
  bool planned = false;
};

Result<std::vector<Entry>> Entries() {
  const std::vector<std::string_view> predictable = PredictableModelTypes();
  std::vector<Entry> entries;
  for (const KnownModel& model : KnownModels()) {
    HEADROOM_ASSIGN_OR_RETURN(const ModelConfig config,
                              ModelConfig::FromJson(model.config_json, model.name));
    Entry entry{model.name, config.model_type(), DefaultTaskOf(config).task, std::nullopt, false};
    entry.planned = std::ranges::find(predictable, config.model_type()) != predictable.end();
    const Result<ParameterTable> table = ParameterTable::Build(config, entry.task);
    if (table.ok()) entry.parameters = table->parameter_count();
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string Json(const std::vector<Entry>& entries) {
  nlohmann::ordered_json models = nlohmann::ordered_json::array();
  for (const Entry& entry : entries) {
    nlohmann::ordered_json model = {{"name", entry.name},
                                    {"model_type", entry.model_type},
                                    {"task", Name(entry.task)},
                                    {"parameters", nullptr},
                                    {"planned", entry.planned}};
    if (entry.parameters) model["parameters"] = *entry.parameters;
    models.push_back(std::move(model));
  }
  return nlohmann::ordered_json{{"models", std::move(models)}}.dump(2) + '\n';
}

// "335.2 M", "8.03 B"; the exact count is for --json.
std::string Short(std::optional<int64_t> parameters) {
  if (!parameters) return "-";
  const auto count = static_cast<double>(*parameters);
  return count < 1e9 ? Format("{:.1f} M", count / 1e6) : Format("{:.2f} B", count / 1e9);
}

// Names last, so that the longest cannot push anything out of line.
std::string Line(std::string_view parameters, std::string_view type, std::string_view name) {
  return Format("{:>8}  {:<12}{}", parameters, type, name);
}

std::string Text(const std::vector<Entry>& entries, const TextStyle& style) {
  std::string planned = Paint(style, Colour::kDim, Line("params", "type", "name")) + '\n';
  std::string others;
  for (const Entry& entry : entries) {
    (entry.planned ? planned : others) +=
        Line(Short(entry.parameters), entry.model_type, entry.name) + '\n';
  }
  if (others.empty()) return planned;
  return planned + '\n' + Paint(style, Colour::kDim, "known, but not planned yet") + '\n' + others;
}

}  // namespace

ExitCode RunModels(std::span<const std::string> words) {
  const Result<Arguments> arguments = ParseArguments(kSyntax, words);
  if (!arguments.ok()) return Fail("models", arguments.error());
  if (arguments->wants_help()) return Print(HelpText(kSyntax));
  const Result<TextStyle> style = StyleOf(*arguments);
  if (!style.ok()) return Fail("models", style.error());
  const Result<std::vector<Entry>> entries = Entries();
  if (!entries.ok()) return Fail("models", Error::Internal(entries.error().message));
  return Print(arguments->Has("--json") ? Json(*entries) : Text(*entries, *style));
}

}  // namespace headroom::cli
