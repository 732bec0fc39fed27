// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/format.h"
#include "engine/files/safetensors_file.h"
#include "engine/files/weights.h"
#include "model/json_text.h"

namespace headroom::engine {
namespace {

namespace fs = std::filesystem;
using graph::kNoTensor;
using graph::TensorId;
using Json = nlohmann::json;

constexpr std::string_view kSchema = "headroom.trainer_state.2";
constexpr std::string_view kPrefix = "checkpoint-";
constexpr const char* kAlgorithms = "gemm_algorithms.json";

std::vector<TensorId> StatesOf(const graph::Graph& graph) {
  std::vector<TensorId> states;
  for (const graph::Parameter& parameter : graph.parameters()) {
    for (const TensorId id : {parameter.m, parameter.v, parameter.m_scales, parameter.v_scales}) {
      if (id != kNoTensor) states.push_back(id);
    }
  }
  return states;
}

std::span<std::byte> BytesOf(const Executor& executor, TensorId id) {
  return {executor.View(id).data, static_cast<size_t>(SizeOf(executor.graph().tensor(id)).count())};
}

Status SaveStates(const fs::path& path, const Executor& executor) {
  const std::vector<TensorId> states = StatesOf(executor.graph());
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const TensorId id : states) {
    const graph::Tensor& tensor = executor.graph().tensor(id);
    tensors.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  HEADROOM_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, tensors));
  for (const TensorId id : states) {
    HEADROOM_RETURN_IF_ERROR(writer.Write(executor.graph().tensor(id).name, BytesOf(executor, id)));
  }
  return writer.Finish();
}

Status LoadStates(const fs::path& path, const Executor& executor) {
  HEADROOM_ASSIGN_OR_RETURN(const SafetensorsReader reader, SafetensorsReader::Open(path));
  for (const TensorId id : StatesOf(executor.graph())) {
    const graph::Tensor& tensor = executor.graph().tensor(id);
    const TensorEntry* entry = reader.Find(tensor.name);
    if (entry == nullptr || entry->shape != tensor.shape) {
      return Error::BadInput(
          Format("{} has no {} of shape {}", path.string(), tensor.name, tensor.shape.ToString()));
    }
    HEADROOM_RETURN_IF_ERROR(reader.Read(tensor.name, tensor.dtype, BytesOf(executor, id)));
  }
  return {};
}

std::string StateText(const TrainerState& state) {
  Json json;
  json["schema"] = kSchema;
  json["global_step"] = state.global_step;
  json["position"] = {{"epoch", state.position.epoch}, {"batch", state.position.batch}};
  json["scaler"] = {{"scale", state.scaler.scale}, {"growth_tracker", state.scaler.growth_tracker}};
  json["loss_sum"] = state.loss_sum;
  json["clipped_steps"] = state.clipped_steps;
  json["skipped_steps"] = state.skipped_steps;
  json["recipe"] = state.recipe;
  return json.dump(2) + "\n";
}

// A whole number that a run may count to, or -1.
int64_t CountIn(const Json& object, const char* key) {
  constexpr int64_t kMost = int64_t{1} << 53;
  const Json& value = object.at(key);
  return value.is_number_unsigned() && value <= kMost ? value.get<int64_t>() : -1;
}

// JSON has no word for what is not finite, and writes null.
double LossIn(const Json& object, const char* key) {
  const Json& value = object.at(key);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

// Messages show it as it is.
bool IsPlain(std::string_view text) {
  constexpr size_t kLongest = 100;
  const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
  return text.size() <= kLongest && std::ranges::all_of(text, printable);
}

// A factor of 0 or -1 steps stand for what no run has.
GradScaler ScalerIn(const Json& object) {
  GradScaler scaler;
  const auto scale = object.at("scale").get<double>();
  const bool held = scale > 0 && scale <= double{std::numeric_limits<float>::max()};
  scaler.scale = held ? static_cast<float>(scale) : 0;
  const int64_t tracker = CountIn(object, "growth_tracker");
  scaler.growth_tracker =
      tracker < scaler.growth_interval ? static_cast<int32_t>(tracker) : int32_t{-1};
  return scaler;
}

bool IsPossible(const TrainerState& state) {
  return state.global_step >= 0 && state.position.epoch >= 0 && state.position.batch >= 0 &&
         state.scaler.scale > 0 && state.scaler.growth_tracker >= 0 &&
         !std::isinf(state.loss_sum) && state.clipped_steps >= 0 && state.skipped_steps >= 0 &&
         state.clipped_steps + state.skipped_steps <= state.global_step &&
         std::ranges::all_of(state.recipe, [](const auto& part) { return IsPlain(part.second); });
}

Result<TrainerState> ParseState(const std::string& text, const std::string& origin) {
  std::vector<std::string> ignored;
  HEADROOM_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, origin, MiB(1), ignored));
  TrainerState state;
  try {
    if (json.at("schema") != kSchema) {
      return Error::BadInput(origin + ": written by another version of headroom");
    }
    state.global_step = CountIn(json, "global_step");
    state.position = {CountIn(json.at("position"), "epoch"), CountIn(json.at("position"), "batch")};
    state.scaler = ScalerIn(json.at("scaler"));
    state.loss_sum = LossIn(json, "loss_sum");
    state.clipped_steps = CountIn(json, "clipped_steps");
    state.skipped_steps = CountIn(json, "skipped_steps");
    state.recipe = json.at("recipe").get<std::map<std::string, std::string>>();
  } catch (const Json::exception&) {
    return Error::BadInput(origin + ": no trainer state of headroom");
  }
  if (!IsPossible(state)) return Error::BadInput(origin + ": values that no run has");
  return state;
}

Status CompareRecipes(const std::map<std::string, std::string>& was,
                      const std::map<std::string, std::string>& is, const std::string& origin) {
  std::string differences;
  const auto add = [&](const std::string& name, const std::string& old, const std::string& now) {
    differences += Format("{}{} was {} and is {}", differences.empty() ? "" : "; ", name, old, now);
  };
  for (const auto& [name, value] : is) {
    const auto before = was.find(name);
    if (before == was.end()) {
      add(name, "not there", value);
    } else if (before->second != value) {
      add(name, before->second, value);
    }
  }
  if (differences.empty()) return {};
  return Error::BadInput(
      Format("{} is of another recipe: {}. Resume with what it was, or start anew from its folder "
             "as MODEL",
             origin, differences));
}

Status Failed(const std::string& what, const fs::path& path, const std::error_code& reason) {
  return Error::Internal(Format("cannot {} {}: {}", what, path.string(), reason.message()));
}

DType TruthOf(const ModelGraph& model) {
  return model.graph.tensor(model.graph.parameters().front().truth()).dtype;
}

std::optional<int64_t> StepOf(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [at, failure] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (failure != std::errc() || at != end) return std::nullopt;
  return step;
}

std::map<int64_t, fs::path> CheckpointsOf(const fs::path& folder) {
  std::map<int64_t, fs::path> checkpoints;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::optional<int64_t> step = StepOf(entry.path());
    if (step && entry.is_directory(ignored)) checkpoints[*step] = entry.path();
  }
  return checkpoints;
}

}  // namespace

std::map<std::string, std::string> RecipeOf(const TrainOptions& options, int64_t steps) {
  const auto number = [](double value) { return Format("{}", value); };
  std::map<std::string, std::string> recipe = {
      {"task", std::string(Name(options.task))},
      {"per_device_train_batch_size", std::to_string(options.per_device_train_batch_size)},
      {"gradient_accumulation_steps", std::to_string(options.gradient_accumulation_steps)},
      {"sequence_length", std::to_string(options.sequence_length)},
      {"target_sequence_length", std::to_string(options.target_sequence_length)},
      {"max_steps", std::to_string(steps)},
      {"lr_scheduler_type", std::string(Name(options.lr_scheduler_type))},
      {"learning_rate", number(options.learning_rate)},
      {"warmup_steps", number(options.warmup_steps)},
      {"weight_decay", number(options.weight_decay)},
      {"adam_beta1", number(options.adam_beta1)},
      {"adam_beta2", number(options.adam_beta2)},
      {"adam_epsilon", number(options.adam_epsilon)},
      {"max_grad_norm", number(options.max_grad_norm)},
      {"label_smoothing_factor", number(options.label_smoothing_factor)},
      {"optim", std::string(OptimName(options.optimizer))},
      {"precision", std::string(Name(options.precision))},
      {"lean", options.lean ? "true" : "false"},
      {"group_by_length", options.group_by_length ? "true" : "false"},
      {"seed", std::to_string(options.seed)},
  };
  // Others have masters.
  if (options.lean) {
    recipe["stochastic_rounding"] = options.optimizer.stochastic_rounding ? "true" : "false";
  }
  return recipe;
}

Status SaveModel(const fs::path& folder, const ModelGraph& model, const Executor& executor,
                 const ModelFiles& files) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) return Failed("make", folder, failure);
  HEADROOM_RETURN_IF_ERROR(
      SaveWeights(folder / "model.safetensors", model, executor, TruthOf(model)));
  for (const auto& [name, text] : files) {
    HEADROOM_RETURN_IF_ERROR(WriteFile(folder / name, text));
  }
  return {};
}

Status SaveCheckpoint(const fs::path& folder, const ModelGraph& model, const Executor& executor,
                      const TrainerState& state, const ModelFiles& files, const Device* device) {
  const fs::path unfinished = folder.string() + ".tmp";
  std::error_code failure;
  fs::remove_all(unfinished, failure);
  const auto write = [&]() -> Status {
    HEADROOM_RETURN_IF_ERROR(SaveModel(unfinished, model, executor, files));
    HEADROOM_RETURN_IF_ERROR(SaveStates(unfinished / "optimizer.safetensors", executor));
    const std::string algorithms = device == nullptr ? "" : device->Algorithms();
    if (!algorithms.empty()) {
      HEADROOM_RETURN_IF_ERROR(WriteFile(unfinished / kAlgorithms, algorithms));
    }
    return WriteFile(unfinished / "trainer_state.json", StateText(state));
  };
  if (Status status = write(); !status.ok()) {
    fs::remove_all(unfinished, failure);
    return status;
  }
  fs::remove_all(folder, failure);
  fs::rename(unfinished, folder, failure);
  if (failure) return Failed("rename to", folder, failure);
  return {};
}

Result<TrainerState> LoadCheckpoint(const fs::path& folder, const ModelGraph& model,
                                    const Executor& executor,
                                    const std::map<std::string, std::string>& recipe) {
  const fs::path path = folder / "trainer_state.json";
  HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  HEADROOM_ASSIGN_OR_RETURN(TrainerState state, ParseState(text, path.string()));
  HEADROOM_RETURN_IF_ERROR(CompareRecipes(state.recipe, recipe, folder.string()));
  HEADROOM_ASSIGN_OR_RETURN(const SafetensorsReader reader,
                            SafetensorsReader::Open(folder / "model.safetensors"));
  HEADROOM_ASSIGN_OR_RETURN(const LoadedWeights loaded, LoadWeights(reader, model, executor));
  if (!loaded.initialised.empty()) {
    return Error::BadInput(
        Format("{}: the checkpoint has no {}", folder.string(), loaded.initialised.front()));
  }
  HEADROOM_RETURN_IF_ERROR(LoadStates(folder / "optimizer.safetensors", executor));
  return state;
}

std::optional<std::string> TakeAlgorithms(const fs::path& checkpoint, Device* device) {
  const fs::path path = checkpoint / kAlgorithms;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  const auto line = [&](const std::string& why) {
    return Format("{}: not used: {}; results will differ in their last bits", path.string(), why);
  };
  if (device == nullptr) return line("they are of a GPU, and this is the CPU");
  const Result<std::string> text = ReadFile(path, MiB(16));
  if (!text.ok()) return line(text.error().message);
  const Status status = device->UseAlgorithms(*text);
  if (!status.ok()) return line(status.error().message);
  return std::nullopt;
}

std::optional<fs::path> LastCheckpoint(const fs::path& folder) {
  const std::map<int64_t, fs::path> checkpoints = CheckpointsOf(folder);
  if (checkpoints.empty()) return std::nullopt;
  return checkpoints.rbegin()->second;
}

void RemoveOldCheckpoints(const fs::path& folder, int64_t keep) {
  if (keep <= 0) return;
  std::map<int64_t, fs::path> checkpoints = CheckpointsOf(folder);
  std::error_code ignored;
  while (static_cast<int64_t>(checkpoints.size()) > keep) {
    fs::remove_all(checkpoints.begin()->second, ignored);
    checkpoints.erase(checkpoints.begin());
  }
}

}  // namespace headroom::engine
