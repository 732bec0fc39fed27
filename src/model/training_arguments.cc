// SPDX-License-Identifier: Apache-2.0
#include "model/training_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/format.h"
#include "base/nearest.h"
#include "model/json_text.h"
#include "model/yaml_text.h"

namespace headroom {
namespace {

using Json = nlohmann::json;

constexpr Bytes kLargestFile = KiB(256);
constexpr int64_t kLargestNumber = int64_t{1} << 31;

// ---- The fields ----

// kRead, kNoEffect and kNotModelled together are the fields of TrainingArguments of transformers
// 5.17.0, training_args.py, and TRL's two names for the length of a sample.

// clang-format off
constexpr std::string_view kRead[] = {
    "bf16", "fp16", "gradient_accumulation_steps", "gradient_checkpointing",
    "gradient_checkpointing_kwargs", "max_grad_norm", "max_length", "max_seq_length", "optim",
    "per_device_train_batch_size", "tf32", "torch_empty_cache_steps",
};

constexpr std::string_view kNoEffect[] = {
    "accelerator_config", "adam_beta1", "adam_beta2", "adam_epsilon",
    "average_tokens_across_devices", "batch_eval_metrics", "bf16_full_eval", "data_seed",
    "dataloader_drop_last", "dataloader_in_order", "dataloader_multiprocessing_context",
    "dataloader_num_workers", "dataloader_persistent_workers", "dataloader_pin_memory",
    "dataloader_prefetch_factor", "ddp_backend", "ddp_broadcast_buffers", "ddp_bucket_cap_mb",
    "ddp_find_unused_parameters", "ddp_static_graph", "ddp_timeout", "debug", "disable_tqdm",
    "do_eval", "do_predict", "do_train", "enable_jit_checkpoint", "eval_accumulation_steps",
    "eval_delay", "eval_do_concat_batches", "eval_on_start", "eval_steps", "eval_strategy",
    "eval_use_gather_object", "fp16_full_eval", "fsdp_config", "full_determinism",
    "greater_is_better", "hub_always_push", "hub_model_id", "hub_private_repo", "hub_revision",
    "hub_strategy", "hub_token", "ignore_data_skip", "include_for_metrics",
    "include_num_input_tokens_seen", "label_names", "learning_rate", "length_column_name",
    "liger_kernel_config", "load_best_model_at_end", "local_rank", "log_level", "log_level_replica",
    "log_on_each_node", "logging_first_step", "logging_nan_inf_filter", "logging_steps",
    "logging_strategy", "lr_scheduler_kwargs", "lr_scheduler_type", "max_steps",
    "metric_for_best_model", "num_train_epochs", "optim_args", "output_dir",
    "per_device_eval_batch_size", "prediction_loss_only", "project", "push_to_hub",
    "remove_unused_columns", "report_to", "restore_callback_states_from_checkpoint",
    "resume_from_checkpoint", "run_name", "save_on_each_node", "save_only_model", "save_steps",
    "save_strategy", "save_total_limit", "seed", "skip_memory_metrics", "trackio_bucket_id",
    "trackio_space_id", "trackio_static_space_id", "train_sampling_strategy", "warmup_steps",
    "weight_decay",
};

// clang-format on

struct NotModelled {
  std::string_view key;
  std::string_view why;
};
constexpr NotModelled kNotModelled[] = {
    {"auto_find_batch_size", "the batch is taken as given, not reduced until it fits"},
    {"deepspeed",
     "the plan is that of one GPU without DeepSpeed (--nproc-per-node, --deepspeed-stage)"},
    {"fsdp", "the plan is that of one GPU without FSDP (--nproc-per-node, --fsdp: version 2)"},
    {"label_smoothing_factor", "the loss is the model's own, without smoothing"},
    {"neftune_noise_alpha", "embeddings are taken without noise"},
    {"optim_target_modules", "the optimizer is taken to update every parameter"},
    {"parallelism_config", "the plan is that of one GPU"},
    {"torch_compile", "the plan is that of eager execution"},
    {"torch_compile_backend", "the plan is that of eager execution"},
    {"torch_compile_mode", "the plan is that of eager execution"},
    {"use_cache", "training is taken to keep no key-value cache"},
    {"use_cpu", "the plan is that of a GPU"},
    {"use_liger_kernel", "the plan is that of the model's own kernels"},
};

// Fields of transformers 4 that 5 renamed: refused with their new name.
constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
    {"adafactor", "optim: adafactor"},
    {"evaluation_strategy", "eval_strategy"},
    {"per_gpu_eval_batch_size", "per_device_eval_batch_size"},
    {"per_gpu_train_batch_size", "per_device_train_batch_size"},
    {"torchdynamo", "torch_compile"},
};

// clang-format off
// Fields of transformers 4 that 5 dropped and that never decided memory: files still carry them.
constexpr std::string_view kRetired[] = {
    "fp16_backend", "fp16_opt_level", "group_by_length", "half_precision_backend",
    "include_inputs_for_metrics", "include_tokens_per_second", "jit_mode_eval", "logging_dir",
    "mp_parameters", "no_cuda", "overwrite_output_dir", "past_index", "push_to_hub_model_id",
    "push_to_hub_organization", "push_to_hub_token", "ray_scope", "save_safetensors",
    "tpu_metrics_debug", "tpu_num_cores", "use_ipex", "use_legacy_prediction_loop",
    "use_mps_device", "warmup_ratio",
};

// OptimizerNames of transformers 5.17.0 that Optim does not have.
constexpr std::string_view kOtherOptims[] = {
    "adalomo", "adamw_anyprecision", "adamw_torch_4bit", "adamw_torch_8bit",
    "adamw_torch_npu_fused", "adamw_torch_xla", "apollo_adamw", "apollo_adamw_layerwise",
    "galore_adafactor", "galore_adafactor_layerwise", "galore_adamw", "galore_adamw_8bit",
    "galore_adamw_8bit_layerwise", "galore_adamw_layerwise", "grokadamw", "lomo",
    "schedule_free_adamw", "schedule_free_radam", "schedule_free_sgd", "stable_adamw",
};
// clang-format on

template <typename Names>
bool IsIn(const Names& names, std::string_view key) {
  return std::ranges::find(names, key) != std::end(names);
}

// ---- Values ----

Error WrongValue(std::string_view key, std::string_view needed, const Json& value) {
  return Error::BadInput(Format("\"{}\" must be {}, not {}", key, needed, Shown(value)));
}

// The readers below leave `target` as it is when the key is absent or null, Python's None.
const Json* Find(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Status ReadCount(const Json& object, std::string_view key, std::optional<int64_t>& target) {
  const Json* value = Find(object, key);
  if (value == nullptr) return {};
  const bool fits = value->is_number_integer() && *value >= 1 && *value <= kLargestNumber;
  if (!fits) {
    return WrongValue(key, Format("a whole number from 1 to {}", kLargestNumber), *value);
  }
  target = value->get<int64_t>();
  return {};
}

Status ReadBool(const Json& object, std::string_view key, std::optional<bool>& target) {
  const Json* value = Find(object, key);
  if (value == nullptr) return {};
  if (!value->is_boolean()) return WrongValue(key, "true or false", *value);
  target = value->get<bool>();
  return {};
}

Status ReadPrecision(const Json& object, std::optional<Precision>& target) {
  std::optional<bool> bf16, fp16, tf32;
  HEADROOM_RETURN_IF_ERROR(ReadBool(object, "bf16", bf16));
  HEADROOM_RETURN_IF_ERROR(ReadBool(object, "fp16", fp16));
  HEADROOM_RETURN_IF_ERROR(ReadBool(object, "tf32", tf32));
  if (bf16.value_or(false) && fp16.value_or(false)) {
    return Error::BadInput("\"bf16\" and \"fp16\" are both true: set one of them to false");
  }
  if (!bf16 && !fp16 && !tf32) return {};
  // Autocast decides over TF32, which only changes what is left in fp32.
  target = bf16.value_or(false)   ? Precision::kBf16
           : fp16.value_or(false) ? Precision::kFp16
           : tf32.value_or(false) ? Precision::kTf32
                                  : Precision::kFp32;
  return {};
}

Status ReadOptim(const Json& object, std::optional<Optim>& target) {
  const Json* value = Find(object, "optim");
  if (value == nullptr) return {};
  if (!value->is_string()) return WrongValue("optim", "a name such as \"adamw_torch\"", *value);
  const std::string& name = value->get_ref<const std::string&>();
  target = ParseOptim(name);
  if (target) return {};
  const std::vector<std::string_view> known = OptimNames();
  if (IsIn(kOtherOptims, name)) {
    return Error::Unsupported(
        Format("\"optim\": {} is not modelled; those are {}", name, fmt::join(known, ", ")));
  }
  const std::string hint = DidYouMean(name, known);
  return Error::BadInput(
      Format("\"optim\": unknown optimizer {}{}", Quoted(name),
             hint.empty() ? Format("; known are {}", fmt::join(known, ", ")) : hint));
}

Status ReadMaxGradNorm(const Json& object, std::optional<double>& target) {
  const auto found = object.find("max_grad_norm");
  if (found == object.end()) return {};
  // Trainer compares it with 0, so None fails there too.
  if (!found->is_number() || !(found->get<double>() >= 0)) {
    return WrongValue("max_grad_norm", "a number from 0 (no clipping)", *found);
  }
  target = found->get<double>();
  return {};
}

Status ReadCheckpointing(const Json& object, TrainingArgumentsReading& reading) {
  HEADROOM_RETURN_IF_ERROR(
      ReadBool(object, "gradient_checkpointing", reading.gradient_checkpointing));
  constexpr std::string_view kKey = "gradient_checkpointing_kwargs";
  const Json* value = Find(object, kKey);
  if (value == nullptr) return {};
  Json kwargs = *value;
  if (kwargs.is_string()) {  // the command line's form, which TrainingArguments parses as well
    const std::string text = kwargs.get<std::string>();
    HEADROOM_ASSIGN_OR_RETURN(
        kwargs, ParseJsonObject(text, Format("\"{}\"", kKey), kLargestFile, reading.warnings));
  }
  if (!kwargs.is_object()) {
    return WrongValue(kKey, "an object such as {\"use_reentrant\": false}", kwargs);
  }
  HEADROOM_RETURN_IF_ERROR(ReadBool(kwargs, "use_reentrant", reading.use_reentrant));
  for (const auto& [key, ignored] : kwargs.items()) {
    if (key != "use_reentrant") {
      reading.without_effect.push_back(Format("{}.{}", kKey, key));
    }
  }
  return {};
}

Status ReadSequenceLength(const Json& object, std::optional<int64_t>& target) {
  std::optional<int64_t> length, older_name;
  HEADROOM_RETURN_IF_ERROR(ReadCount(object, "max_length", length));
  HEADROOM_RETURN_IF_ERROR(ReadCount(object, "max_seq_length", older_name));
  if (length && older_name && *length != *older_name) {
    return Error::BadInput(
        Format("\"max_length\" is {} and \"max_seq_length\" is {}: keep one of them", *length,
               *older_name));
  }
  target = length ? length : older_name;
  return {};
}

// ---- Keys that are not read ----

Error UnknownKey(std::string_view key) {
  for (const auto& [old_name, new_name] : kRenamed) {
    if (key == old_name) {
      return Error::BadInput(
          Format("\"{}\" is not in TrainingArguments any more: use \"{}\"", key, new_name));
    }
  }
  std::vector<std::string_view> known(std::begin(kRead), std::end(kRead));
  known.insert(known.end(), std::begin(kNoEffect), std::end(kNoEffect));
  for (const NotModelled& entry : kNotModelled) known.push_back(entry.key);
  const std::string hint = DidYouMean(key, known);
  return Error::BadInput(
      Format("TrainingArguments has no {}{}", Quoted(key), hint.empty() ? ": remove it" : hint));
}

bool IsOff(const Json& value) {
  return value.is_null() || value == false || value == 0 || value == "" ||
         (value.is_structured() && value.empty());
}

Status SortRemaining(const Json& object, std::string_view origin,
                     TrainingArgumentsReading& reading) {
  for (const auto& [key, value] : object.items()) {
    if (IsIn(kRead, key)) continue;
    const auto not_modelled = std::ranges::find(kNotModelled, key, &NotModelled::key);
    if (not_modelled != std::end(kNotModelled)) {
      if (IsOff(value)) {
        reading.without_effect.push_back(key);
      } else {
        reading.warnings.push_back(
            Format("{}: \"{}\" is not modelled: {}", origin, key, not_modelled->why));
      }
    } else if (IsIn(kNoEffect, key) || IsIn(kRetired, key)) {
      reading.without_effect.push_back(key);
    } else {
      return UnknownKey(key);
    }
  }
  return {};
}

Status ReadAll(const Json& object, std::string_view origin, TrainingArgumentsReading& reading) {
  HEADROOM_RETURN_IF_ERROR(
      ReadCount(object, "per_device_train_batch_size", reading.per_device_train_batch_size));
  HEADROOM_RETURN_IF_ERROR(
      ReadCount(object, "gradient_accumulation_steps", reading.gradient_accumulation_steps));
  HEADROOM_RETURN_IF_ERROR(
      ReadCount(object, "torch_empty_cache_steps", reading.torch_empty_cache_steps));
  HEADROOM_RETURN_IF_ERROR(ReadSequenceLength(object, reading.sequence_length));
  HEADROOM_RETURN_IF_ERROR(ReadPrecision(object, reading.precision));
  HEADROOM_RETURN_IF_ERROR(ReadOptim(object, reading.optim));
  HEADROOM_RETURN_IF_ERROR(ReadMaxGradNorm(object, reading.max_grad_norm));
  HEADROOM_RETURN_IF_ERROR(ReadCheckpointing(object, reading));
  HEADROOM_RETURN_IF_ERROR(SortRemaining(object, origin, reading));
  std::ranges::sort(reading.without_effect);
  return {};
}

template <typename T>
void Assign(const std::optional<T>& value, T& target) {
  if (value) target = *value;
}

}  // namespace

void TrainingArgumentsReading::ApplyTo(Recipe& recipe) const {
  Assign(per_device_train_batch_size, recipe.per_device_train_batch_size);
  Assign(gradient_accumulation_steps, recipe.gradient_accumulation_steps);
  Assign(sequence_length, recipe.sequence_length);
  Assign(precision, recipe.precision);
  Assign(optim, recipe.optim);
  Assign(gradient_checkpointing, recipe.gradient_checkpointing);
  Assign(use_reentrant, recipe.use_reentrant);
  Assign(max_grad_norm, recipe.max_grad_norm);
  Assign(torch_empty_cache_steps, recipe.torch_empty_cache_steps);
}

Result<TrainingArgumentsReading> ReadTrainingArguments(std::string_view text,
                                                       std::string_view origin) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && text[first] == '{';
  TrainingArgumentsReading reading;
  HEADROOM_ASSIGN_OR_RETURN(
      const Json object, is_json ? ParseJsonObject(text, origin, kLargestFile, reading.warnings)
                                 : ParseYamlMapping(text, origin, kLargestFile, reading.warnings));
  if (const Status status = ReadAll(object, origin, reading); !status.ok()) {
    return status.error().In(std::string(origin));
  }
  for (const auto& [key, value] : object.items()) {
    if (value.is_string()) reading.values[key] = value.get<std::string>();
    if (value.is_number() || value.is_boolean()) reading.values[key] = value.dump();
  }
  return reading;
}

bool DecidesMemory(std::string_view field) {
  return std::ranges::find(kRead, field) != std::end(kRead) ||
         std::ranges::find(kNotModelled, field, &NotModelled::key) != std::end(kNotModelled);
}

}  // namespace headroom
