// SPDX-License-Identifier: Apache-2.0
#include "placement.h"

#include <algorithm>
#include <set>

#include "base/format.h"
#include "make_plan.h"
#include "model/device_map.h"
#include "model/parameter_table.h"
#include "output.h"
#include "predict/context.h"
#include "report/placement_report.h"

namespace headroom::cli {
namespace {

// Keys and values of one layer: what DynamicCache holds of a batch.
Bytes KvBytesPerLayer(const ModelConfig& config, const Recipe& recipe, DType dtype) {
  if (recipe.task != Task::kCausalLm) return {};
  const std::optional<int64_t> heads = config.MaybeInt("num_attention_heads");
  const std::optional<int64_t> hidden = config.MaybeInt("hidden_size");
  if (!heads || !hidden || *heads <= 0) return {};
  const int64_t kv_heads = config.MaybeInt("num_key_value_heads").value_or(*heads);
  const int64_t head = config.MaybeInt("head_dim").value_or(*hidden / *heads);
  return Bytes(2 * recipe.per_device_train_batch_size * recipe.sequence_length * kv_heads * head *
               ElementSize(dtype));
}

// How many transformer layers the modules of a card hold; a whole list counts all of its layers.
int64_t LayersIn(const std::vector<std::string>& modules, const std::set<std::string>& layers) {
  return std::ranges::count_if(layers, [&](const std::string& layer) {
    return std::ranges::any_of(modules, [&](const std::string& module) {
      return layer == module || layer.starts_with(module + ".");
    });
  });
}

std::vector<std::string> PathsOf(const std::vector<PlacedModule>& modules) {
  std::vector<std::string> paths;
  for (const PlacedModule& module : modules) paths.push_back(module.path);
  return paths;
}

Result<PlacementReport> Build(const PlanOptions& options) {
  HEADROOM_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(options.model));
  const Decided decided = Decide(options, model.config);
  const Result<ParameterTable> table = ParameterTable::Build(model.config, decided.recipe.task);
  if (!table.ok()) return table.error().In(model.origin);
  const DType dtype = decided.recipe.weights_dtype.value_or(DType::kFloat32);
  const Budget budget = *BudgetOf(options);

  PlacementReport report;
  report.model = model.name;
  report.parameters = table->parameter_count();
  report.model_bytes = table->parameter_bytes(dtype) + table->buffer_bytes(dtype);
  report.gpu = budget.gpu;
  report.memory = budget.memory;
  for (const ContextPart& part :
       predict::OutsideAllocator(decided.platform, AttnImplementation::kEager, decided.recipe)) {
    report.context += part.bytes;
  }
  const Bytes kv = KvBytesPerLayer(model.config, decided.recipe, dtype);
  report.recipe = {
      Format("{} weights", Name(dtype)),
      Format("device_map {}",
             *options.parallel.device_map == DeviceMapKind::kAuto ? "\"auto\"" : "\"sequential\"")};
  std::set<std::string> layers;
  for (const ParameterSpec& entry : table->entries()) {
    if (const std::string_view layer = LayerOf(entry.name); !layer.empty()) layers.emplace(layer);
  }
  // A process has opened CUDA on each card before accelerate asks how much is free.
  const Bytes free = std::max(budget.memory - report.context, Bytes(0));
  const DeviceMap map = InferDeviceMap(
      *table, dtype, std::vector<Bytes>(static_cast<size_t>(options.parallel.gpus), free),
      *options.parallel.device_map);
  for (const std::vector<PlacedModule>& card : map.cards) {
    CardReport placed;
    placed.modules = PathsOf(card);
    placed.weights = DeviceMap::Sum(card);
    placed.kv_cache = Bytes(kv.count() * LayersIn(placed.modules, layers));
    report.cards.push_back(std::move(placed));
  }
  report.offloaded = DeviceMap::Sum(map.offloaded);
  report.offloaded_modules = PathsOf(map.offloaded);
  report.assumptions = {
      "modules are placed as transformers 5.17.0 and accelerate 1.15.0 do it, every card empty "
      "before",
      kv > Bytes(0)
          ? Format("KV cache of {} x {} tokens; activations are not counted",
                   decided.recipe.per_device_train_batch_size, decided.recipe.sequence_length)
          : std::string("activations are not counted"),
      Format("{} of every card for CUDA context and kernels, taken from an H200",
             FormatBytes(report.context)),
      "not measured: the figures follow from the sources"};
  report.warnings = decided.warnings;
  return report;
}

}  // namespace

ExitCode RunPlacement(const PlanOptions& options, const TextStyle& style) {
  const Result<PlacementReport> report = Build(options);
  if (!report.ok()) return Fail("plan", report.error());
  const ExitCode code = report->fits() ? ExitCode::kOk : ExitCode::kDoesNotFit;
  if (!options.json) return Print(PlacementText(*report, style), code);
  for (const std::string& warning : report->warnings) Warn("plan", warning);
  return Print(PlacementJson(*report), code);
}

}  // namespace headroom::cli
