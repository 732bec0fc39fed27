// SPDX-License-Identifier: Apache-2.0
#include "make_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "default_task.h"
#include "model/config.h"
#include "model/kv_layout.h"
#include "model/locate.h"
#include "verdict.h"

namespace headroom::cli {

Result<LoadedModel> LoadModel(const std::string& model) {
  HEADROOM_ASSIGN_OR_RETURN(std::optional<LocatedModel> located, LocateModel(model));
  if (located) {
    HEADROOM_ASSIGN_OR_RETURN(ModelConfig config,
                              ModelConfig::FromJson(located->config_text, located->origin));
    return LoadedModel{std::move(located->name), std::move(located->origin), std::move(config)};
  }
  const KnownModel* known = FindKnownModel(model);
  if (known == nullptr) {
    std::error_code ignored;
    if (std::filesystem::is_directory(model, ignored)) {
      return Error::BadInput(Format("{}: a folder without config.json", model));
    }
    return UnknownModel(model);
  }
  HEADROOM_ASSIGN_OR_RETURN(ModelConfig config,
                            ModelConfig::FromJson(known->config_json, known->name));
  return LoadedModel{std::string(known->name), std::string(known->name), std::move(config)};
}

namespace {

void DecideWeightsDType(const PlanOptions& options, const ModelConfig& config, Decided& decided) {
  // create_model_from_path of TRL 1.16.0 asks for float32, whatever the config says.
  const bool by_name = options.recipe.sft_trainer && !options.weights_dtype;
  const std::optional<DType> of_config = by_name ? std::nullopt : config.dtype();
  const DType dtype = options.weights_dtype.value_or(of_config.value_or(DType::kFloat32));
  decided.recipe.weights_dtype = dtype;
  if (by_name) {
    decided.assumptions.emplace_back(
        "weights in float32: SFTTrainer loads a model that is given by its name so (--dtype "
        "changes it)");
  } else if (options.weights_dtype) {
    decided.assumptions.push_back(Format("weights in {}: --dtype", Name(dtype)));
  } else if (of_config) {
    decided.assumptions.push_back(
        Format("weights in {}: the config's dtype, as from_pretrained loads it (--dtype "
               "changes it)",
               Name(dtype)));
  } else {
    decided.assumptions.push_back(
        "weights in float32: the config names no dtype (--dtype changes it)");
  }
}

void DecideTask(const PlanOptions& options, const ModelConfig& config, Decided& decided) {
  if (options.task) {
    decided.recipe.task = *options.task;
    return;
  }
  if (decided.recipe.driver == Driver::kGenerate) {
    // Whatever else the config's class does, what generates is a language model.
    const bool both = config.MaybeBool("is_encoder_decoder").value_or(false);
    decided.recipe.task = both ? Task::kSeq2SeqLm : Task::kCausalLm;
    return;
  }
  const DefaultTask task = DefaultTaskOf(config);
  decided.recipe.task = task.task;
  decided.assumptions.push_back(
      Format("task {}: {} (--task changes it)", Name(task.task), task.because));
}

void DecideLengths(const PlanOptions& options, const ModelConfig& config, Decided& decided) {
  Recipe& recipe = decided.recipe;
  if (recipe.task == Task::kImageClassification) {
    recipe.sequence_length = 0;
    recipe.batches.clear();
    if (options.sequence_length) {
      decided.warnings.push_back("--seq has no effect: images have no sequence length");
    }
  } else if (!recipe.batches.empty()) {
    recipe.sequence_length = std::ranges::max(recipe.batches, {}, &BatchShape::tokens).tokens;
    recipe.per_device_train_batch_size =
        std::ranges::max(recipe.batches, {}, &BatchShape::samples).samples;
  } else if (options.sequence_length) {
    recipe.sequence_length = *options.sequence_length;
  } else {
    const int64_t positions =
        config.MaybeInt("max_position_embeddings")
            .value_or(config.MaybeInt("max_target_positions").value_or(recipe.sequence_length));
    recipe.sequence_length = std::min(recipe.sequence_length, positions);
    decided.assumptions.push_back(Format("{} tokens per {} (--seq changes it)",
                                         recipe.sequence_length,
                                         recipe.driver == Driver::kGenerate ? "prompt" : "sample"));
  }
  if (options.target_sequence_given && recipe.task != Task::kSeq2SeqLm) {
    decided.warnings.push_back(
        Format("--target-seq has no effect: the task is {}", Name(recipe.task)));
    recipe.target_sequence_length = 0;
  }
}

// torch.nn.Transformer is no class of transformers: a loop of one's own trains it, with Adam.
void DecideDriver(const PlanOptions& options, const ModelConfig& config, Decided& decided) {
  if (config.model_type() != "torch-transformer" || decided.recipe.driver != Driver::kTrainer) {
    return;
  }
  decided.recipe.driver = Driver::kTorchLoop;
  if (!options.optim_given) decided.recipe.optim = Optim::kAdam;
  decided.assumptions.emplace_back("a plain PyTorch loop: autocast, GradScaler, clipping");
}

// A classifier's own head is trained with the adapters, as task_type says in PEFT's examples.
void DecideLora(Decided& decided) {
  if (!decided.recipe.lora) return;
  const bool classifies = decided.recipe.task == Task::kSequenceClassification ||
                          decided.recipe.task == Task::kTokenClassification;
  if (!classifies || decided.recipe.lora->trains_classifier) return;
  decided.recipe.lora->trains_classifier = true;
  decided.assumptions.push_back("LoRA with the task's task_type: the classifier is trained too");
}

void DecideDefaults(const PlanOptions& options, Decided& decided) {
  std::vector<std::string> defaults;
  if (decided.recipe.driver == Driver::kGenerate) {
    if (!options.batch_given) decided.assumptions.emplace_back("one prompt (--batch changes it)");
    return;
  }
  if (!options.batch_given) {
    defaults.push_back(Format("batch {}", decided.recipe.per_device_train_batch_size));
  }
  if (!options.optim_given) defaults.push_back(Format("optim {}", Name(decided.recipe.optim)));
  if (defaults.empty()) return;
  const bool trainer = decided.recipe.driver == Driver::kTrainer;
  decided.assumptions.push_back(Format(
      "{}: {}", trainer ? "TrainingArguments' defaults" : "not given", fmt::join(defaults, ", ")));
}

void DecidePlatform(const PlanOptions& options, Decided& decided) {
  Platform& platform = decided.platform;
  platform = MeasuredPlatform();
  platform.allocator = options.allocator;
  if (options.torch_version) platform.torch_version = *options.torch_version;
  if (options.transformers_version) platform.transformers_version = *options.transformers_version;
  if (options.gpu) {
    platform.gpu = *options.gpu;
  } else {
    decided.assumptions.push_back(Format(
        "CUDA context and library workspaces of an {} (--gpu changes it)", platform.gpu.name));
  }
  if (!options.gpu || !options.memory) return;
  decided.assumptions.push_back(Format("--memory stands for the {} that the {} has",
                                       FormatBytes(options.gpu->usable), options.gpu->name));
}

}  // namespace

Status CheckScaler(const Recipe& recipe) {
  if (recipe.precision != Precision::kFp16 || recipe.weights_dtype != DType::kFloat16) return {};
  if (recipe.lora) return {};  // whose adapters are float32
  return Error::BadInput(
      "--fp16 cannot train float16 weights (PyTorch refuses to unscale their gradients): add "
      "--dtype float32");
}

Decided Decide(const PlanOptions& options, const ModelConfig& config) {
  Decided decided;
  decided.recipe = options.recipe;
  decided.warnings = options.warnings;
  DecideWeightsDType(options, config, decided);
  DecideDriver(options, config, decided);
  DecideTask(options, config, decided);
  DecideLengths(options, config, decided);
  DecideLora(decided);
  DecideDefaults(options, decided);
  DecidePlatform(options, decided);
  return decided;
}

namespace {

std::string BatchText(const Recipe& recipe) {
  const int64_t batch = recipe.per_device_train_batch_size;
  if (recipe.sequence_length == 0) return Format("batch {}", batch);
  if (!recipe.batches.empty()) {
    return Format("{} batches of up to {} tokens a sample", recipe.batches.size(),
                  recipe.sequence_length);
  }
  std::string text = Format("batch {} x {} tokens", batch, recipe.sequence_length);
  if (recipe.target_sequence_length > 0) {
    text += Format(" to {}", recipe.target_sequence_length);
  }
  return text;
}

std::string PrecisionText(const Recipe& recipe) {
  const std::string_view weights = Name(recipe.weights_dtype.value_or(DType::kFloat32));
  const bool autocast =
      recipe.precision == Precision::kBf16 || recipe.precision == Precision::kFp16;
  const bool converted =
      recipe.parallel.sharding == Sharding::kFsdp || recipe.parallel.sharding == Sharding::kZero1 ||
      recipe.parallel.sharding == Sharding::kZero2 || recipe.parallel.sharding == Sharding::kZero3;
  if (autocast && converted) return Format("{} over shares in float32", Name(recipe.precision));
  if (autocast) return Format("{} autocast over {} weights", Name(recipe.precision), weights);
  if (weights != "float32") return Format("{} weights, no autocast", weights);
  return std::string(Name(recipe.precision));
}

std::string WeightsText(const Recipe& recipe) {
  const Quantization& quantization = recipe.quantization;
  const std::string_view rest = Name(recipe.weights_dtype.value_or(DType::kFloat32));
  if (quantization.kind == Quantization::Kind::kNone) return Format("{} weights", rest);
  std::string text = Format("{} and {} weights", Name(quantization.kind), rest);
  if (quantization.kind == Quantization::Kind::kInt8) return text;
  if (quantization.double_quant) text += ", double quantisation";
  return text + Format(", multiplied in {}", Name(quantization.compute_dtype));
}

std::vector<std::string> GenerationParts(const Recipe& recipe, AttnImplementation attn) {
  const Generation& options = recipe.generation;
  std::string search = options.do_sample ? "sampling" : "greedy";
  if (options.num_beams > 1) search = Format("{} beams", options.num_beams);
  return {Format("generation, batch {} x {} + {} tokens", recipe.per_device_train_batch_size,
                 recipe.sequence_length, options.max_new_tokens),
          WeightsText(recipe), search,
          options.use_cache ? Format("{} cache", Name(options.cache)) : "no cache",
          Format("{} attention", Name(attn))};
}

}  // namespace

std::vector<std::string> RecipeParts(const Recipe& recipe, AttnImplementation attn) {
  if (recipe.driver == Driver::kGenerate) return GenerationParts(recipe, attn);
  std::vector<std::string> parts = {std::string(Name(recipe.task)), BatchText(recipe),
                                    PrecisionText(recipe), std::string(Name(recipe.optim)),
                                    Format("{} attention", Name(attn))};
  if (recipe.gradient_accumulation_steps > 1) {
    parts.push_back(Format("{} accumulated", recipe.gradient_accumulation_steps));
  }
  if (recipe.gradient_checkpointing) {
    parts.push_back(recipe.use_reentrant ? "reentrant gradient checkpointing"
                                         : "gradient checkpointing");
  }
  if (recipe.sft_trainer) parts.emplace_back("SFTTrainer");
  if (recipe.parallel.activation_checkpointing) parts.emplace_back("activation checkpointing");
  if (recipe.parallel.ranks > 1) {
    parts.push_back(
        Format("{} over {} GPUs", Name(recipe.parallel.sharding), recipe.parallel.ranks));
  }
  if (recipe.max_grad_norm == 0) parts.emplace_back("no clipping");
  if (recipe.lora) parts.push_back(Format("LoRA r {}", recipe.lora->r));
  if (recipe.evaluation) parts.emplace_back("evaluation");
  return parts;
}

namespace {

template <typename T>
void Append(std::vector<T>& list, const std::vector<T>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

}  // namespace

std::optional<Budget> BudgetOf(const PlanOptions& options) {
  if (!options.gpu && !options.memory) return std::nullopt;
  Budget budget;
  if (options.gpu) budget = {std::string(options.gpu->name), options.gpu->usable};
  if (options.memory) budget.memory = *options.memory;
  return budget;
}

Result<Plan> MakePlan(const PlanOptions& options) {
  HEADROOM_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(options.model));
  Decided decided = Decide(options, model.config);
  HEADROOM_RETURN_IF_ERROR(CheckScaler(decided.recipe));
  const auto predict = [&](std::optional<Bytes> limit) -> Result<Prediction> {
    Platform platform = decided.platform;
    platform.memory_limit = limit;
    Result<Prediction> prediction = Predict(model.config, decided.recipe, platform);
    if (!prediction.ok()) return prediction.error().In(model.origin);
    return prediction;
  };
  HEADROOM_ASSIGN_OR_RETURN(Prediction prediction, predict(std::nullopt));

  PlanHeader header;
  header.model = model.name;
  header.recipe = RecipeParts(decided.recipe, prediction.attn_used);
  header.parameters = prediction.parameters;
  header.trainable = prediction.trainable;
  header.model_reserved = prediction.after_model_reserved;
  if (decided.recipe.driver == Driver::kGenerate) {
    const DType dtype = decided.recipe.weights_dtype.value_or(DType::kFloat32);
    header.cache_per_token = KvLayoutOf(model.config).BytesPerToken(dtype);
  }
  header.assumptions = std::move(decided.assumptions);
  Append(header.assumptions, prediction.assumptions);
  header.warnings = std::move(decided.warnings);
  Append(header.warnings, model.config.warnings());
  if (const std::optional<Budget> budget = BudgetOf(options)) {
    HEADROOM_ASSIGN_OR_RETURN(header.verdict, Judge(prediction, *budget, predict));
  }
  PlanReport report = BuildPlanReport(prediction.ledger, std::move(header));
  return Plan{std::move(prediction.ledger), std::move(report)};
}

Result<ResolvedModel> ResolveModel(const PlanOptions& options) {
  HEADROOM_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(options.model));
  const Decided decided = Decide(options, model.config);
  return ResolvedModel{std::move(model.name), std::move(model.config), decided.recipe.task,
                       decided.recipe.weights_dtype.value_or(DType::kFloat32)};
}

}  // namespace headroom::cli
