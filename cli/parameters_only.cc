// SPDX-License-Identifier: Apache-2.0
#include "parameters_only.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "base/format.h"
#include "make_plan.h"
#include "model/config.h"
#include "model/config_peek.h"
#include "model/locate.h"
#include "model/safetensors.h"
#include "predict/predict.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

// Outside the allocator, as a training run without fused attention has it (predict/context.cc).
constexpr Bytes kContext = MiB(742);

// Where the weights may lie, and why they alone are planned.
struct Source {
  fs::path path;
  std::string name;
  std::string why;
  std::optional<DType> config_dtype;
};

bool IsWeightsFile(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

std::string NameOf(const fs::path& folder) {
  std::error_code ignored;
  const fs::path absolute = fs::absolute(folder, ignored).lexically_normal();
  return (absolute.has_filename() ? absolute : absolute.parent_path()).filename().string();
}

// A config.json that is there: null when its model type is planned in full.
std::optional<Source> SourceBeside(const LocatedModel& located) {
  const Result<ConfigPeek> config = PeekConfig(located.config_text, located.origin);
  if (!config.ok() || config->model_type.empty()) return std::nullopt;
  const auto is_one_of = [](const std::vector<std::string_view>& types, std::string_view type) {
    return std::ranges::find(types, type) != types.end();
  };
  // A composite config counts by its text part; a known type whose config is wrong is an error that
  // the full plan tells.
  const Result<ModelConfig> known = ModelConfig::FromJson(located.config_text, located.origin);
  const bool full = known.ok() ? is_one_of(PredictableModelTypes(), known->model_type())
                               : is_one_of(ModelConfig::KnownModelTypes(), config->model_type);
  if (full) return std::nullopt;
  return Source{fs::path(located.origin).parent_path(), located.name,
                Format("model_type \"{}\" has no shape here", config->model_type), config->dtype};
}

std::optional<Source> FindSource(const std::string& model) {
  std::error_code ignored;
  const fs::path path(model);
  if (fs::is_regular_file(path, ignored)) {
    if (!IsWeightsFile(path)) return std::nullopt;
    return Source{path, path.filename().string(), "a file of weights names no model", std::nullopt};
  }
  if (fs::is_directory(path, ignored) && !fs::exists(path / "config.json", ignored)) {
    return Source{path, NameOf(path), "the folder holds no config.json", std::nullopt};
  }
  const Result<std::optional<LocatedModel>> located = LocateModel(model);
  if (!located.ok() || !located->has_value()) return std::nullopt;
  return SourceBeside(**located);
}

// dtypes whose tensors train.
std::optional<DType> FloatDType(std::string_view stored) {
  if (stored == "F32") return DType::kFloat32;
  if (stored == "F16") return DType::kFloat16;
  if (stored == "BF16") return DType::kBFloat16;
  if (stored == "F64") return DType::kFloat64;
  return std::nullopt;
}

std::vector<StoredDType> ByDType(const std::vector<StoredTensor>& tensors) {
  std::map<std::string, StoredDType> found;
  for (const StoredTensor& tensor : tensors) {
    StoredDType& stored = found[tensor.dtype];
    stored.dtype = tensor.dtype;
    ++stored.tensors;
    stored.elements += tensor.elements();
    stored.bytes += tensor.bytes();
  }
  std::vector<StoredDType> list;
  for (auto& [name, stored] : found) list.push_back(std::move(stored));
  std::ranges::stable_sort(list, std::greater(), &StoredDType::bytes);
  return list;
}

// bitsandbytes (predict/optimizers_bnb.cc): tensors below 4,096 elements keep float32 states;
// larger ones of an 8-bit optimizer a byte a state, and a float32 scale for each block of 256.
// Paged states may lie on either side, and are counted.
int64_t BitsAndBytesStates(int64_t states, bool in_8bit, int64_t elements) {
  constexpr int64_t kSmallest = 4096;
  constexpr int64_t kBlock = 256;
  if (!in_8bit || elements < kSmallest) return states * 4 * elements;
  return states * (elements + (elements + kBlock - 1) / kBlock * 4);
}

// States of one tensor of `elements`, loaded with `size` bytes each (predict/optimizers.cc).
int64_t StateBytes(Optim optim, const std::vector<int64_t>& shape, int64_t elements, int64_t size) {
  switch (optim) {
    case Optim::kAdamWTorch:
    case Optim::kAdamWTorchFused:
    case Optim::kAdam:
      return 2 * elements * size;
    case Optim::kAdagrad:
    case Optim::kRmsprop:
      return elements * size;
    case Optim::kSgd:
      return 0;
    case Optim::kAdafactor: {
      if (shape.size() < 2 || shape.back() == 0 || elements == 0) return elements * 4;
      const int64_t rows = elements / shape.back();
      const int64_t columns = elements / shape[shape.size() - 2];
      return (rows + columns) * 4;
    }
    case Optim::kAdamW8bit:
    case Optim::kPagedAdamW8bit:
      return BitsAndBytesStates(2, true, elements);
    case Optim::kPagedAdamW32bit:
      return BitsAndBytesStates(2, false, elements);
    case Optim::kLion8bit:
    case Optim::kPagedLion8bit:
    case Optim::kRmspropBnb8bit:
      return BitsAndBytesStates(1, true, elements);
    case Optim::kLion32bit:
    case Optim::kPagedLion32bit:
    case Optim::kRmspropBnb32bit:
      return BitsAndBytesStates(1, false, elements);
    case Optim::kAdEMAMix8bit:
    case Optim::kPagedAdEMAMix8bit:
      return BitsAndBytesStates(3, true, elements);
    case Optim::kAdEMAMix32bit:
    case Optim::kPagedAdEMAMix32bit:
      return BitsAndBytesStates(3, false, elements);
  }
  return 0;
}

// Weights as loaded, gradients and states, tensor by tensor.
void AddTensors(const std::vector<StoredTensor>& tensors, const PlanOptions& options,
                ParametersReport& report) {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t states = 0;
  int64_t weights = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::optional<DType> stored = FloatDType(tensor.dtype);
    if (!stored) {
      weights += tensor.bytes().count();
      continue;
    }
    const int64_t size = ElementSize(options.weights_dtype.value_or(*stored));
    const int64_t elements = tensor.elements();
    parameters += elements;
    weights += elements * size;
    gradients += elements * size;
    states += StateBytes(options.recipe.optim, tensor.shape, elements, size);
  }
  report.parameters = parameters;
  report.weights = Bytes(weights);
  report.gradients = Bytes(gradients);
  report.optimizer = Bytes(states);
}

// Without the shards only the sum is known; with the config's dtype, the number of elements.
void AddSum(Bytes total, std::optional<DType> stored, const PlanOptions& options,
            ParametersReport& report) {
  report.weights = total;
  if (!stored) {
    report.assumptions.emplace_back(
        "the shards are not beside the index, and no config.json names a dtype: gradients and "
        "optimizer are not known");
    return;
  }
  const int64_t elements = total.count() / ElementSize(*stored);
  const int64_t size = ElementSize(options.weights_dtype.value_or(*stored));
  report.parameters = elements;
  report.weights = Bytes(elements * size);
  report.gradients = report.weights;
  report.optimizer = Bytes(StateBytes(options.recipe.optim, {elements}, elements, size));
  report.assumptions.push_back(
      Format("the shards are not beside the index: all weights are {}, as config.json says",
             Name(*stored)));
}

void AddAssumptions(const PlanOptions& options, ParametersReport& report) {
  report.assumptions.push_back(
      options.weights_dtype ? Format("weights loaded in {}: --dtype", Name(*options.weights_dtype))
                            : "weights loaded as they are stored (--dtype changes it)");
  report.assumptions.push_back(Format(
      "full training with {}: every floating-point weight has a gradient of its type (--optim "
      "changes the optimizer)",
      Name(options.recipe.optim)));
  report.assumptions.emplace_back(
      "tied weights that are stored twice count twice; buffers that are not stored do not count");
  report.assumptions.emplace_back("CUDA context and libraries as measured on an H200");
  if (options.recipe.precision == Precision::kBf16 ||
      options.recipe.precision == Precision::kFp16) {
    report.assumptions.emplace_back(
        "autocast's 16-bit copies of the weights are activations, and not in this sum");
  }
}

}  // namespace

Result<std::optional<ParametersReport>> PlanParameters(const PlanOptions& options) {
  const std::optional<Source> source = FindSource(options.model);
  if (!source) return std::optional<ParametersReport>();
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<StoredWeights> weights,
                            ReadStoredWeights(source->path));
  if (!weights) return std::optional<ParametersReport>();
  if (!options.ledger_path.empty()) {
    return Error::BadInput(
        Format("--ledger: {} is planned by its parameters only, which make no allocations to write",
               source->name));
  }
  ParametersReport report;
  report.model = source->name;
  report.why = source->why;
  report.files = weights->files;
  report.stored_bytes = weights->total;
  report.stored = ByDType(weights->tensors);
  report.optim = Name(options.recipe.optim);
  report.context = kContext;
  if (weights->tensors.empty()) {
    AddSum(weights->total, source->config_dtype, options, report);
  } else {
    AddTensors(weights->tensors, options, report);
  }
  AddAssumptions(options, report);
  report.warnings = options.warnings;
  if (options.by_module) {
    report.warnings.emplace_back("--by-module has no effect: only parameters are known");
  }
  if (const std::optional<Budget> budget = BudgetOf(options)) {
    report.device = budget->gpu;
    report.memory = budget->memory;
  }
  return std::optional(std::move(report));
}

}  // namespace headroom::cli
