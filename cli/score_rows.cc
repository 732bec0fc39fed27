// SPDX-License-Identifier: Apache-2.0
#include "score_rows.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/format.h"
#include "model/json_text.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLargestCount = int64_t{1} << 62;
constexpr int64_t kLargestRecipeNumber = int64_t{1} << 31;
// Of plan's --steps and --accum: what is played takes time and memory with each.
constexpr int64_t kMostSteps = 100;
constexpr int64_t kMostAccumulated = 1 << 16;
constexpr Bytes kLongestRow = MiB(16);

Error Missing(std::string_view key, std::string_view what) {
  return Error::BadInput(Format("\"{}\" is missing or not {}", key, what));
}

Result<std::string> Text(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return Missing(key, "a text");
  return found->get<std::string>();
}

Result<int64_t> Count(const Json& value, std::string_view key, int64_t largest) {
  if (!value.is_number_integer()) return Missing(key, "a whole number");
  const bool huge =
      value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(largest);
  if (huge || value.get<int64_t>() < 0 || value.get<int64_t>() > largest) {
    return Error::BadInput(Format("\"{}\" is negative or larger than {}", key, largest));
  }
  return value.get<int64_t>();
}

Result<std::optional<int64_t>> MaybeCount(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::optional<int64_t>();
  HEADROOM_ASSIGN_OR_RETURN(const int64_t count, Count(*found, key, kLargestCount));
  return std::optional(count);
}

// ---- The recipe ----

using Apply = std::function<Status(const Json& value, MeasuredRow& row)>;

// Sets a number of the recipe.
template <typename T>
Apply Number(std::string_view key, T Recipe::*member, int64_t smallest,
             int64_t largest = kLargestRecipeNumber) {
  return [=](const Json& value, MeasuredRow& row) -> Status {
    HEADROOM_ASSIGN_OR_RETURN(const int64_t count, Count(value, key, largest));
    if (count < smallest) {
      return Error::BadInput(Format("\"{}\" must be at least {}", key, smallest));
    }
    row.recipe.*member = static_cast<T>(count);
    return {};
  };
}

Apply Truth(std::string_view key, bool Recipe::*member) {
  return [=](const Json& value, MeasuredRow& row) -> Status {
    if (!value.is_boolean()) return Missing(key, "true or false");
    row.recipe.*member = value.get<bool>();
    return {};
  };
}

// Sets a named choice of the recipe; a name that is not known makes the row unsupported.
template <typename T, typename Member>
Apply Choice(std::string_view key, Member Recipe::*member,
             std::optional<T> (*parse)(std::string_view)) {
  return [=](const Json& value, MeasuredRow& row) -> Status {
    if (!value.is_string()) return Missing(key, "a text");
    const std::string name = value.get<std::string>();
    if (const std::optional<T> choice = parse(name)) {
      row.recipe.*member = *choice;
    } else {
      row.unsupported = Format("{} {}", key, name);
    }
    return {};
  };
}

Status ApplyMode(const Json& value, MeasuredRow& row) {
  if (value == "torch-loop") {
    row.recipe.driver = Driver::kTorchLoop;
  } else if (value == "generate") {
    row.recipe.driver = Driver::kGenerate;
    row.recipe.generation.min_new_tokens = true;
  } else if (value != "train" && value != "trainer") {
    row.unsupported = "mode";
  }
  return {};
}

Apply GenerationNumber(const char* key, int64_t Generation::*member) {
  return [=](const Json& value, MeasuredRow& row) -> Status {
    HEADROOM_ASSIGN_OR_RETURN(row.recipe.generation.*member,
                              Count(value, key, kLargestRecipeNumber));
    return {};
  };
}

Status ApplyCache(const Json& value, MeasuredRow& row) {
  if (!value.is_string()) return Missing("cache", "a text");
  const std::string name = value.get<std::string>();
  row.recipe.generation.use_cache = name != "none";
  if (const auto cache = ParseCacheImplementation(name)) {
    row.recipe.generation.cache = *cache;
  } else if (name != "none") {
    row.unsupported = Format("cache {}", name);
  }
  return {};
}

Status ApplyQuantization(const Json& value, MeasuredRow& row) {
  if (!value.is_string()) return Missing("quant", "a text");
  const std::string name = value.get<std::string>();
  for (const auto kind :
       {Quantization::Kind::kInt8, Quantization::Kind::kFp4, Quantization::Kind::kNf4}) {
    if (Name(kind) == name) {
      row.recipe.quantization.kind = kind;
      return {};
    }
  }
  row.unsupported = Format("quant {}", name);
  return {};
}

Status ApplyDoubleQuant(const Json& value, MeasuredRow& row) {
  if (!value.is_boolean()) return Missing("double_quant", "true or false");
  row.recipe.quantization.double_quant = value.get<bool>();
  return {};
}

Status ApplyComputeDType(const Json& value, MeasuredRow& row) {
  if (!value.is_string()) return Missing("compute_dtype", "a text");
  if (const std::optional<DType> dtype = ParseDType(value.get<std::string>())) {
    row.recipe.quantization.compute_dtype = *dtype;
  } else {
    row.unsupported = Format("compute_dtype {}", value.get<std::string>());
  }
  return {};
}

Status ApplyLoading(const Json& value, MeasuredRow& row) {
  if (value == "device-map") {
    row.recipe.loading = Loading::kDeviceMap;
  } else if (value != "to") {
    row.unsupported = "load";
  }
  return {};
}

Status ApplySampling(const Json& value, MeasuredRow& row) {
  if (!value.is_boolean()) return Missing("do_sample", "true or false");
  row.recipe.generation.do_sample = value.get<bool>();
  return {};
}

Status ApplyMaxGradNorm(const Json& value, MeasuredRow& row) {
  if (!value.is_number() || value.get<double>() < 0) return Missing("max_grad_norm", "a number");
  row.recipe.max_grad_norm = value.get<double>();
  return {};
}

Status ApplyLoraConfig(const Json& value, MeasuredRow& row) {
  Result<LoraConfig> lora = ParseLoraConfig(value.dump());
  if (lora.ok()) {
    row.recipe.lora = *std::move(lora);
    return {};
  }
  if (lora.error().code != ErrorCode::kUnsupported) return lora.error();
  row.unsupported = lora.error().message;
  return {};
}

// BitsAndBytesConfig's arguments.
Status ApplyBitsAndBytesConfig(const Json& value, MeasuredRow& row) {
  if (!value.is_object()) return Missing("quantization", "an object");
  Quantization& how = row.recipe.quantization;
  const auto text = [&](const char* key, const char* otherwise) {
    return value.contains(key) && value[key].is_string() ? value[key].get<std::string>()
                                                         : std::string(otherwise);
  };
  const auto truth = [&](const char* key) { return value.contains(key) && value[key] == true; };
  if (truth("load_in_8bit")) {
    how.kind = Quantization::Kind::kInt8;
    return {};
  }
  const bool nf4 = text("bnb_4bit_quant_type", "fp4") == "nf4";
  how.kind = nf4 ? Quantization::Kind::kNf4 : Quantization::Kind::kFp4;
  how.double_quant = truth("bnb_4bit_use_double_quant");
  const std::optional<DType> compute = ParseDType(text("bnb_4bit_compute_dtype", "float32"));
  if (!compute) return Missing("bnb_4bit_compute_dtype", "a type");
  how.compute_dtype = *compute;
  return {};
}

// prepare_model_for_kbit_training's arguments. TrainingArguments' checkpointing comes afterwards.
Status ApplyKbit(const Json& value, MeasuredRow& row) {
  if (!value.is_object()) return Missing("kbit", "an object");
  row.recipe.kbit = KbitPreparation{};
  if (value.contains("use_gradient_checkpointing") &&
      value["use_gradient_checkpointing"] == false) {
    return {};
  }
  const bool reentrant = !(value.contains("gradient_checkpointing_kwargs") &&
                           value["gradient_checkpointing_kwargs"].is_object() &&
                           value["gradient_checkpointing_kwargs"].contains("use_reentrant") &&
                           value["gradient_checkpointing_kwargs"]["use_reentrant"] == false);
  row.recipe.kbit->input_require_grads = reentrant;
  if (row.recipe.gradient_checkpointing) return {};
  row.recipe.gradient_checkpointing = true;
  row.recipe.use_reentrant = reentrant;
  return {};
}

// {"batch", "samples", "every", "accumulation_steps", "metrics", "loss_only"}
Status ApplyEvaluation(const Json& value, MeasuredRow& row) {
  if (!value.is_object()) return Missing("eval", "an object");
  Evaluation evaluation;
  const auto number = [&](const char* key, int64_t& target) -> Status {
    if (!value.contains(key) || value[key].is_null()) return {};
    HEADROOM_ASSIGN_OR_RETURN(target, Count(value[key], key, kLargestRecipeNumber));
    return {};
  };
  HEADROOM_RETURN_IF_ERROR(number("batch", evaluation.per_device_eval_batch_size));
  HEADROOM_RETURN_IF_ERROR(number("samples", evaluation.samples));
  HEADROOM_RETURN_IF_ERROR(number("every", evaluation.eval_steps));
  HEADROOM_RETURN_IF_ERROR(number("accumulation_steps", evaluation.eval_accumulation_steps));
  if (evaluation.per_device_eval_batch_size < 1 || evaluation.eval_steps < 1) {
    return Error::BadInput("\"eval\": batch and every must be at least 1");
  }
  evaluation.compute_metrics = value.contains("metrics") && value["metrics"] == true;
  evaluation.prediction_loss_only = value.contains("loss_only") && value["loss_only"] == true;
  row.recipe.evaluation = evaluation;
  return {};
}

Status ApplyAllocConf(const Json& value, MeasuredRow& row) {
  if (!value.is_string()) return Missing("alloc_conf", "a text");
  row.alloc_conf = value.get<std::string>();
  return {};
}

// How bench/measure_sharding.py writes it: {"kind": "fsdp", "world": 8, "config": {…}}.
Status ApplyParallel(const Json& value, MeasuredRow& row) {
  if (!value.is_object()) return Missing("parallel", "an object");
  Parallel& parallel = row.recipe.parallel;
  HEADROOM_ASSIGN_OR_RETURN(const std::string kind, Text(value, "kind"));
  if (!value.contains("world")) return Missing("world", "a whole number");
  HEADROOM_ASSIGN_OR_RETURN(parallel.ranks, Count(value["world"], "world", 1 << 16));
  if (kind == "ddp") {
    parallel.sharding = Sharding::kDdp;
  } else if (kind == "fsdp") {
    parallel.sharding = Sharding::kFsdp;
  } else if (kind == "tp") {
    parallel.sharding = Sharding::kTensorParallel;
  } else {
    row.unsupported = fmt::format("parallel {}", kind);
  }
  if (value.contains("bucket_cap_mb")) {
    HEADROOM_ASSIGN_OR_RETURN(parallel.ddp_bucket_cap_mb,
                              Count(value["bucket_cap_mb"], "bucket_cap_mb", 1 << 20));
  }
  if (value.contains("find_unused")) {
    parallel.ddp_find_unused_parameters = value["find_unused"] == true;
  }
  if (!value.contains("config") || !value["config"].is_object()) return {};
  const Json& config = value["config"];
  if (config.value("version", Json(2)) != 2) row.unsupported = "FSDP1 (FSDP2 is modelled)";
  parallel.reshard_after_forward = config.value("reshard_after_forward", Json(true)) != false;
  parallel.activation_checkpointing = config.value("activation_checkpointing", Json(false)) == true;
  return {};
}

Status ApplyLengths(const Json& value, MeasuredRow& row) {
  if (!value.is_array()) return Missing("lengths", "a list");
  for (const Json& length : value) {
    HEADROOM_ASSIGN_OR_RETURN(const int64_t tokens, Count(length, "lengths", kLargestRecipeNumber));
    if (tokens < 1) return Error::BadInput("\"lengths\" must be at least 1");
    row.recipe.batches.push_back({0, tokens});
  }
  return {};
}

struct RecipeKey {
  std::string_view name;
  Apply apply;
};

const std::vector<RecipeKey>& RecipeKeys() {
  const auto nothing = [](const Json&, MeasuredRow&) -> Status { return {}; };
  static const std::vector<RecipeKey> keys = {
      {"batch", Number("batch", &Recipe::per_device_train_batch_size, 1)},
      {"seq", Number("seq", &Recipe::sequence_length, 0)},
      {"target_seq", Number("target_seq", &Recipe::target_sequence_length, 0)},
      {"accum", Number("accum", &Recipe::gradient_accumulation_steps, 1, kMostAccumulated)},
      {"steps", Number("steps", &Recipe::steps, 1, kMostSteps)},
      {"precision", Choice("precision", &Recipe::precision, &ParsePrecision)},
      {"optim", Choice("optim", &Recipe::optim, &ParseOptim)},
      {"attn", Choice("attn", &Recipe::attn_implementation, &ParseAttnImplementation)},
      {"weights_dtype", Choice("weights_dtype", &Recipe::weights_dtype, &ParseDType)},
      {"checkpoint", Truth("checkpoint", &Recipe::gradient_checkpointing)},
      {"reentrant", Truth("reentrant", &Recipe::use_reentrant)},
      {"attention_mask", Truth("attention_mask", &Recipe::attention_mask)},
      {"max_grad_norm", &ApplyMaxGradNorm},
      {"mode", &ApplyMode},
      {"parallel", &ApplyParallel},
      {"lengths", &ApplyLengths},
      {"alloc_conf", &ApplyAllocConf},
      {"lora", &ApplyLoraConfig},
      {"quantization", &ApplyBitsAndBytesConfig},
      {"kbit", &ApplyKbit},
      {"eval", &ApplyEvaluation},
      {"empty_cache_steps", Number("empty_cache_steps", &Recipe::torch_empty_cache_steps, 0)},
      {"problem_type", Choice("problem_type", &Recipe::problem_type, &ParseProblemType)},
      {"snapshot", nothing},
      {"beams", GenerationNumber("beams", &Generation::num_beams)},
      {"cache", &ApplyCache},
      {"do_sample", &ApplySampling},
      {"quant", &ApplyQuantization},
      {"double_quant", &ApplyDoubleQuant},
      {"compute_dtype", &ApplyComputeDType},
      {"load", &ApplyLoading},
      {"new_tokens", GenerationNumber("new_tokens", &Generation::max_new_tokens)},
  };
  return keys;
}

Status ReadRecipe(const Json& recipe, MeasuredRow& row) {
  for (const auto& [name, value] : recipe.items()) {
    if (value.is_null()) continue;
    const auto key = std::ranges::find(RecipeKeys(), name, &RecipeKey::name);
    if (key == RecipeKeys().end()) {
      row.unsupported = Format("recipe with {}", name);
      continue;
    }
    if (const Status status = key->apply(value, row); !status.ok()) {
      return status.error().In("\"recipe\"");
    }
  }
  for (BatchShape& batch : row.recipe.batches) {
    batch.samples = row.recipe.per_device_train_batch_size;
  }
  return {};
}

// ---- The row ----

Status ReadPhases(const Json& object, MeasuredRow& row) {
  const auto phases = object.find("phases");
  if (phases == object.end()) return {};
  if (!phases->is_array()) return Missing("phases", "a list");
  for (const Json& phase : *phases) {
    if (!phase.is_array() || phase.size() < 3 || !phase[0].is_string()) {
      return Missing("phases", "a list of [name, allocated, peak, reserved]");
    }
    HEADROOM_ASSIGN_OR_RETURN(const int64_t allocated, Count(phase[1], "phases", kLargestCount));
    HEADROOM_ASSIGN_OR_RETURN(const int64_t peak, Count(phase[2], "phases", kLargestCount));
    row.phases.push_back({phase[0].get<std::string>(), allocated, peak});
  }
  return {};
}

Status ReadBoundary(const Json& object, MeasuredRow& row) {
  HEADROOM_ASSIGN_OR_RETURN(row.completes_at, MaybeCount(object, "completes_at"));
  HEADROOM_ASSIGN_OR_RETURN(row.fails_at, MaybeCount(object, "fails_at"));
  if (row.completes_at.has_value() != row.fails_at.has_value()) {
    return Error::BadInput("\"completes_at\" and \"fails_at\" stand together: give both or none");
  }
  if (row.completes_at && *row.completes_at <= *row.fails_at) {
    return Error::BadInput(Format("\"completes_at\" {} is not above \"fails_at\" {}",
                                  *row.completes_at, *row.fails_at));
  }
  return {};
}

Status ReadMeasurements(const Json& object, MeasuredRow& row) {
  HEADROOM_ASSIGN_OR_RETURN(row.parameters, MaybeCount(object, "params"));
  HEADROOM_ASSIGN_OR_RETURN(row.after_model_allocated, MaybeCount(object, "after_model_allocated"));
  HEADROOM_ASSIGN_OR_RETURN(row.peak_allocated, MaybeCount(object, "peak_allocated"));
  HEADROOM_ASSIGN_OR_RETURN(row.peak_reserved, MaybeCount(object, "peak_reserved"));
  if (!row.peak_allocated) return Missing("peak_allocated", "a whole number");
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<int64_t> process,
                            MaybeCount(object, "final_process"));
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<int64_t> reserved,
                            MaybeCount(object, "final_reserved"));
  if (row.peak_reserved && process && reserved) {
    row.device = *row.peak_reserved - *reserved + *process;
  }
  HEADROOM_RETURN_IF_ERROR(ReadBoundary(object, row));
  return ReadPhases(object, row);
}

Result<MeasuredRow> ReadRow(const Json& object) {
  MeasuredRow row;
  HEADROOM_ASSIGN_OR_RETURN(row.id, Text(object, "id"));
  HEADROOM_ASSIGN_OR_RETURN(const std::string task, Text(object, "task"));
  if (!object.contains("config") || !object["config"].is_object()) {
    return Missing("config", "an object");
  }
  if (!object.contains("recipe") || !object["recipe"].is_object()) {
    return Missing("recipe", "an object");
  }
  HEADROOM_ASSIGN_OR_RETURN(row.model_type, Text(object["config"], "model_type"));
  row.config_json = object["config"].dump();
  HEADROOM_RETURN_IF_ERROR(ReadRecipe(object["recipe"], row));
  if (const std::optional<Task> known = ParseTask(task)) {
    row.recipe.task = *known;
  } else {
    row.unsupported = Format("task {}", task);
  }
  HEADROOM_RETURN_IF_ERROR(ReadMeasurements(object, row));
  return row;
}

}  // namespace

Result<std::vector<MeasuredRow>> ReadMeasuredRows(std::string_view text, std::string_view origin,
                                                  std::vector<std::string>& warnings) {
  std::vector<MeasuredRow> rows;
  for (int number = 1; !text.empty(); ++number) {
    const size_t newline = text.find('\n');
    const std::string_view line = text.substr(0, newline);
    text = newline == std::string_view::npos ? std::string_view() : text.substr(newline + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = Format("{}:{}", origin, number);
    HEADROOM_ASSIGN_OR_RETURN(const Json object,
                              ParseJsonObject(line, place, kLongestRow, warnings));
    Result<MeasuredRow> row = ReadRow(object);
    if (!row.ok()) return row.error().In(place);
    rows.push_back(*std::move(row));
  }
  if (rows.empty()) {
    return Error::BadInput(
        Format("{}: holds no rows: give a file of measured runs, one JSON "
               "object a line",
               origin));
  }
  return rows;
}

}  // namespace headroom::cli
