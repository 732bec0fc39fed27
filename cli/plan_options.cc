// SPDX-License-Identifier: Apache-2.0
#include "plan_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/format.h"
#include "base/nearest.h"
#include "finetuning_options.h"
#include "generation_options.h"
#include "model/training_arguments.h"
#include "observe/training_args.h"
#include "output.h"

namespace headroom::cli {
namespace {

constexpr Bytes kLargestArguments = MiB(1);
constexpr Bytes kLargestMemory{int64_t{1} << 50};

// ---- The flags ----

constexpr Flag kBatchFlags[] = {
    {"--batch,--per-device-train-batch-size", Takes::kValue, "N",
     "samples in a forward pass (default 8, as TrainingArguments)"},
    {"--seq,--max-length,--prompt-length", Takes::kValue, "N", "tokens per sample (default 512)"},
    {"--target-seq", Takes::kValue, "N", "tokens of the decoder in seq2seq tasks (default --seq)"},
    {"--accum,--gradient-accumulation-steps", Takes::kValue, "N",
     "forward passes per optimizer step (default 1)"},
    {"--attention-mask", Takes::kNothing, "", "the batch carries an attention mask"},
    {"--task", Takes::kValue, "TASK",
     "causal-lm, masked-lm, sequence-classification, token-classification, seq2seq-lm or "
     "image-classification (default: what the config names)"},
    {"--steps", Takes::kValue, "N", "optimizer steps to play (default 3: steady by then)"},
};
constexpr Flag kNumberFlags[] = {
    {"--bf16", Takes::kNothing, "", "bfloat16 autocast"},
    {"--fp16", Takes::kNothing, "", "float16 autocast with gradient scaling"},
    {"--tf32", Takes::kNothing, "", "float32 with TF32 products"},
    {"--fp32", Takes::kNothing, "", "float32 throughout (default)"},
    {"--dtype,--torch-dtype", Takes::kValue, "TYPE",
     "float32, bfloat16 or float16: what the weights are loaded in (default: the config's dtype, "
     "else float32)"},
};
constexpr Flag kTrainingFlags[] = {
    {"--optim", Takes::kValue, "NAME",
     "adamw_torch_fused (default), adamw_torch, sgd, adafactor, adagrad, rmsprop, "
     "adamw_bnb_8bit, paged_adamw_8bit, lion_8bit, ..."},
    {"--attn,--attn-implementation", Takes::kValue, "NAME",
     "sdpa or eager (default: sdpa where the model has it)"},
    {"--gradient-checkpointing", Takes::kOptionalValue, "KIND",
     "recompute activations in backward; reentrant or non-reentrant (default)"},
    {"--use-reentrant", Takes::kNothing, "", "the reentrant kind of --gradient-checkpointing"},
    {"--max-grad-norm", Takes::kValue, "X", "gradient clipping (default 1.0; 0 turns it off)"},
    {"--torch-empty-cache-steps", Takes::kValue, "N",
     "empty the cache before backward, every N steps (default: never)"},
    {"--trainer", Takes::kValue, "NAME",
     "trainer (default), or sft: TRL's SFTTrainer with its defaults (bf16, checkpointing, a mask, "
     "1,024 tokens)"},
    {"--args", Takes::kValue, "FILE",
     "TrainingArguments as JSON, YAML or Trainer's training_args.bin; flags win over the file"},
};
constexpr Flag kPlatformFlags[] = {
    {"--gpu", Takes::kValue, "NAME", "does it fit this card? (headroom gpus lists them)"},
    {"--memory", Takes::kValue, "SIZE",
     "does it fit this much device memory, like 12GiB? Overrides the size of --gpu"},
    {"--alloc-conf", Takes::kValue, "CONF", "PYTORCH_ALLOC_CONF, like expandable_segments:True"},
    {"--torch-version", Takes::kValue, "V", "default 2.11.0, on which Headroom was measured"},
    {"--transformers-version", Takes::kValue, "V", "default 5.17.0, likewise"},
};
constexpr Flag kOutputFlags[] = {
    {"--engine", Takes::kValue, "NAME",
     "pytorch (default), or native: the plan that headroom train would keep"},
    {"--device", Takes::kValue, "NAME", "of --engine native: cuda (default) or cpu"},
    {"--by-module", Takes::kNothing, "", "also the tree of modules, with bytes by component"},
    {"--json", Takes::kNothing, "", "one JSON object, sizes in bytes"},
    {"--html", Takes::kValue, "FILE", "write the report as a page for a browser"},
    {"--ledger", Takes::kValue, "FILE", "write every allocation and free (docs/ledger_format.md)"},
    {"--export-snapshot", Takes::kValue, "FILE",
     "write them as a PyTorch memory snapshot, for pytorch.org/memory_viz"},
    {"--export-trace", Takes::kValue, "FILE", "write them as a Chrome trace, for ui.perfetto.dev"},
    kColorFlag,
};
const FlagGroup kGroups[] = {
    {"Batch and task", kBatchFlags},
    {"Numbers", kNumberFlags},
    {"Training", kTrainingFlags},
    {"LoRA", LoraFlags()},
    {"Evaluation", EvaluationFlags()},
    {"Generation", kGenerationFlags},
    {"Several GPUs", kParallelFlags},
    {"Platform", kPlatformFlags},
    {"Many lengths, or many cards", kPlacementFlags},
    {"Output", kOutputFlags},
};
constexpr size_t kRecipeGroups = 8;  // all that say what runs and on what
const Syntax kSyntax = {
    .command = "plan",
    .summary =
        "Predicts the GPU memory of a Hugging Face training run, or with --generate of "
        "model.generate, to the byte where it can, without running it. With --gpu or --memory it "
        "says whether the run fits, and exits "
        "with 1 when it does not.",
    .positional = "MODEL",
    .positional_help =
        "a config.json, a folder that holds one, ORG/NAME in the local Hugging Face "
        "cache, or a name that headroom models lists",
    .groups = kGroups,
    .examples =
        "  headroom plan bert-large-uncased --batch 4 --seq 512 --bf16\n"
        "  headroom plan meta-llama/Llama-3.1-8B --bf16 --gradient-checkpointing \\\n"
        "    --batch 1 --seq 4096 --gpu H200\n"
        "  headroom plan meta-llama/Llama-3.1-8B --bf16 --lora --lora-r 16 --batch 1 \\\n"
        "    --gpu H100\n"
        "  headroom plan ./my-model --args training_args.yaml --memory 24GiB --json\n"
        "  headroom plan bigcode/starcoder --generate --seq 1024 --max-new-tokens 60 \\\n"
        "    --load-in-4bit --gpu \"RTX 4090\"\n",
};

// ---- Values ----

}  // namespace

Result<int64_t> ReadCount(std::string_view flag, std::string_view text, Range range) {
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = failure != std::errc::invalid_argument && end == text.data() + text.size();
  if (!whole) {
    return Error::BadInput(Format("{} {}: not a whole number: digits alone, like {} {}", flag, text,
                                  flag, std::max<int64_t>(range.smallest, 1)));
  }
  if (failure == std::errc::result_out_of_range || value < range.smallest ||
      value > range.largest) {
    return Error::BadInput(Format("{} {}: must be from {} to {}", flag, text,
                                  Thousands(range.smallest), Thousands(range.largest)));
  }
  return value;
}

namespace {

// Reads `flag` when it is given; leaves `target` alone when not.
template <typename Target>
Status MaybeCount(const Arguments& arguments, std::string_view flag, Range range, Target& target) {
  const std::optional<std::string> text = arguments.Value(flag);
  if (!text) return {};
  HEADROOM_ASSIGN_OR_RETURN(const int64_t value, ReadCount(flag, *text, range));
  target = static_cast<Target>(value);
  return {};
}

// Reads a named choice; `names` are offered when it is not one of them.
template <typename T, typename Target>
Status MaybeChoice(const Arguments& arguments, std::string_view flag,
                   std::optional<T> (*parse)(std::string_view),
                   const std::vector<std::string_view>& names, Target& target) {
  const std::optional<std::string> text = arguments.Value(flag);
  if (!text) return {};
  const std::optional<T> value = parse(*text);
  if (!value) {
    const std::string near = DidYouMean(*text, names);
    return Error::BadInput(
        Format("{} {}: unknown{}", flag, *text,
               near.empty() ? Format(": choose one of {}", fmt::join(names, ", ")) : near));
  }
  target = *value;
  return {};
}

Status ReadMaxGradNorm(const Arguments& arguments, Recipe& recipe) {
  const std::optional<std::string> text = arguments.Value("--max-grad-norm");
  if (!text) return {};
  double value = 0;
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (failure != std::errc() || end != text->data() + text->size() || !std::isfinite(value) ||
      value < 0) {
    return Error::BadInput(
        Format("--max-grad-norm {}: must be a number of at least 0: write 1.0", *text));
  }
  recipe.max_grad_norm = value;
  return {};
}

Status ReadPrecision(const Arguments& arguments, Recipe& recipe) {
  constexpr std::pair<std::string_view, Precision> kFlags[] = {{"--bf16", Precision::kBf16},
                                                               {"--fp16", Precision::kFp16},
                                                               {"--fp32", Precision::kFp32},
                                                               {"--tf32", Precision::kTf32}};
  std::string_view given;
  for (const auto& [flag, precision] : kFlags) {
    if (!arguments.Has(flag)) continue;
    // TF32 beside autocast is common and means the few products that stay in float32.
    const bool beside = flag == "--tf32" && (given == "--bf16" || given == "--fp16");
    if (beside) continue;
    if (!given.empty()) {
      return Error::BadInput(Format("{} and {} contradict each other: keep one", given, flag));
    }
    given = flag;
    recipe.precision = precision;
  }
  return {};
}

Status ReadCheckpointing(const Arguments& arguments, Recipe& recipe) {
  if (const std::optional<std::string> kind = arguments.Value("--gradient-checkpointing")) {
    constexpr std::string_view kKinds[] = {"", "reentrant", "non-reentrant", "false", "False"};
    if (std::ranges::find(kKinds, *kind) == std::end(kKinds)) {
      return Error::BadInput(
          Format("--gradient-checkpointing={}: choose reentrant or non-reentrant", *kind));
    }
    recipe.gradient_checkpointing = *kind != "false" && *kind != "False";
    if (*kind == "reentrant") recipe.use_reentrant = true;
    if (*kind == "non-reentrant") recipe.use_reentrant = false;
    if (*kind == "non-reentrant" && arguments.Has("--use-reentrant")) {
      return Error::BadInput(
          "--gradient-checkpointing=non-reentrant and --use-reentrant contradict each other: keep "
          "one");
    }
  }
  if (!arguments.Has("--use-reentrant")) return {};
  if (!recipe.gradient_checkpointing) {
    return Error::BadInput("--use-reentrant says how to checkpoint: add --gradient-checkpointing");
  }
  recipe.use_reentrant = true;
  return {};
}

// "2.11.0", "2.11", "5.17.0.dev0", "2.11.0+cu130"
Status ReadVersion(const Arguments& arguments, std::string_view flag,
                   std::optional<std::string>& target) {
  const std::optional<std::string> text = arguments.Value(flag);
  if (!text) return {};
  constexpr size_t kLongest = 40;
  const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '+'; };
  const bool digit = std::isdigit(static_cast<unsigned char>(text->front())) != 0;
  if (!digit || text->size() > kLongest || text->find('.') == std::string::npos ||
      !std::ranges::all_of(*text, allowed)) {
    return Error::BadInput(Format("{} {}: not a version: write it like 2.11.0", flag, *text));
  }
  target = *text;
  return {};
}

Status ReadMemory(const Arguments& arguments, PlanOptions& options) {
  const std::optional<std::string> text = arguments.Value("--memory");
  if (!text) return {};
  const Result<Bytes> size = ParseBytes(*text);
  if (!size.ok()) return size.error().In("--memory");
  if (*size < MiB(1) || *size > kLargestMemory) {
    return Error::BadInput(
        Format("--memory {}: no device has {}: write it like 24GiB", *text, FormatBytes(*size)));
  }
  options.memory = *size;
  return {};
}

Status ReadPlatform(const Arguments& arguments, PlanOptions& options) {
  if (const std::optional<std::string> name = arguments.Value("--gpu")) {
    Result<Gpu> gpu = FindGpu(*name);
    if (!gpu.ok()) return gpu.error().In("--gpu");
    options.gpu = *gpu;
  }
  HEADROOM_RETURN_IF_ERROR(ReadMemory(arguments, options));
  if (const std::optional<std::string> conf = arguments.Value("--alloc-conf")) {
    HEADROOM_ASSIGN_OR_RETURN(options.allocator, ParseAllocConf(*conf));
    options.alloc_conf = *conf;
  }
  HEADROOM_RETURN_IF_ERROR(ReadVersion(arguments, "--torch-version", options.torch_version));
  return ReadVersion(arguments, "--transformers-version", options.transformers_version);
}

Status ReadArgumentsFile(const Arguments& arguments, PlanOptions& options) {
  const std::optional<std::string> path = arguments.Value("--args");
  if (!path) return {};
  HEADROOM_ASSIGN_OR_RETURN(std::string text, ReadFile(*path, kLargestArguments));
  // What Trainer saves beside its checkpoints.
  const bool saved_by_trainer = observe::LooksLikeTorchArchive(text);
  if (saved_by_trainer) {
    Result<std::string> json = observe::TrainingArgumentsJson(text, &DecidesMemory);
    if (!json.ok()) return json.error().In(*path);
    text = std::move(json).value();
  }
  HEADROOM_ASSIGN_OR_RETURN(const TrainingArgumentsReading reading,
                            ReadTrainingArguments(text, *path));
  reading.ApplyTo(options.recipe);
  options.sequence_length = reading.sequence_length;
  options.batch_given = reading.per_device_train_batch_size.has_value();
  options.optim_given = reading.optim.has_value();
  options.warnings = reading.warnings;
  // Trainer saves every field; in a file that somebody wrote, one without effect is a surprise.
  if (!reading.without_effect.empty() && !saved_by_trainer) {
    options.warnings.push_back(
        Format("{}: without effect on memory: {}", *path, fmt::join(reading.without_effect, ", ")));
  }
  return {};
}

Status ReadBatch(const Arguments& arguments, PlanOptions& options) {
  constexpr Range kPerDevice = {1, 1 << 20};
  constexpr Range kTokens = {1, 1 << 24};
  Recipe& recipe = options.recipe;
  HEADROOM_RETURN_IF_ERROR(
      MaybeCount(arguments, "--batch", kPerDevice, recipe.per_device_train_batch_size));
  options.batch_given |= arguments.Has("--batch");
  if (arguments.Has("--seq")) options.sequence_length = 0;
  if (options.sequence_length) {
    HEADROOM_RETURN_IF_ERROR(MaybeCount(arguments, "--seq", kTokens, *options.sequence_length));
  }
  HEADROOM_RETURN_IF_ERROR(
      MaybeCount(arguments, "--target-seq", kTokens, recipe.target_sequence_length));
  options.target_sequence_given = arguments.Has("--target-seq");
  HEADROOM_RETURN_IF_ERROR(
      MaybeCount(arguments, "--accum", {1, 1 << 16}, recipe.gradient_accumulation_steps));
  HEADROOM_RETURN_IF_ERROR(MaybeCount(arguments, "--steps", {1, 100}, recipe.steps));
  recipe.attention_mask |= arguments.Has("--attention-mask");
  return {};
}

std::vector<std::string_view> TaskNames() {
  std::vector<std::string_view> names;
  for (const Task task :
       {Task::kCausalLm, Task::kMaskedLm, Task::kSequenceClassification, Task::kTokenClassification,
        Task::kSeq2SeqLm, Task::kImageClassification}) {
    names.push_back(Name(task));
  }
  return names;
}

}  // namespace

const Syntax& PlanSyntax() { return kSyntax; }

std::span<const FlagGroup> RecipeFlags() { return std::span(kGroups).first(kRecipeGroups); }

Result<PlanOptions> ReadPlanOptions(const Arguments& arguments, std::string_view command) {
  if (arguments.positional().empty()) {
    return Error::BadInput(Format(
        "no model: write headroom {0} MODEL, for example headroom {0} bert-base-uncased", command));
  }
  HEADROOM_ASSIGN_OR_RETURN(PlanOptions options,
                            ReadRecipeOptions(arguments, arguments.positional()));
  const std::string engine = arguments.Value("--engine").value_or("pytorch");
  if (engine != "pytorch" && engine != "native") {
    return Error::BadInput(Format("--engine {}: unknown: choose pytorch or native", engine));
  }
  options.native = engine == "native";
  options.json = arguments.Has("--json");
  options.by_module = arguments.Has("--by-module");
  options.html_path = arguments.Value("--html").value_or("");
  options.ledger_path = arguments.Value("--ledger").value_or("");
  options.snapshot_path = arguments.Value("--export-snapshot").value_or("");
  options.trace_path = arguments.Value("--export-trace").value_or("");
  return options;
}

Result<PlanOptions> ReadRecipeOptions(const Arguments& arguments, std::string model) {
  PlanOptions options;
  options.model = std::move(model);
  Recipe& recipe = options.recipe;
  HEADROOM_RETURN_IF_ERROR(ReadTrainer(arguments, recipe));
  HEADROOM_RETURN_IF_ERROR(ReadArgumentsFile(arguments, options));
  HEADROOM_RETURN_IF_ERROR(ReadBatch(arguments, options));
  HEADROOM_RETURN_IF_ERROR(ReadPrecision(arguments, recipe));
  HEADROOM_RETURN_IF_ERROR(ReadCheckpointing(arguments, recipe));
  HEADROOM_RETURN_IF_ERROR(ReadMaxGradNorm(arguments, recipe));
  HEADROOM_RETURN_IF_ERROR(MaybeChoice(arguments, "--task", &ParseTask, TaskNames(), options.task));
  HEADROOM_RETURN_IF_ERROR(
      MaybeChoice(arguments, "--optim", &ParseOptim, OptimNames(), recipe.optim));
  options.optim_given |= arguments.Has("--optim");
  HEADROOM_RETURN_IF_ERROR(MaybeChoice(arguments, "--attn", &ParseAttnImplementation,
                                       {"sdpa", "eager", "flash_attention_2"},
                                       recipe.attn_implementation));
  HEADROOM_RETURN_IF_ERROR(MaybeChoice(arguments, "--dtype", &ParseDType,
                                       {"float32", "bfloat16", "float16"}, options.weights_dtype));
  if (options.weights_dtype &&
      !(IsHalf(*options.weights_dtype) || *options.weights_dtype == DType::kFloat32)) {
    return Error::BadInput(
        Format("--dtype {}: weights are trained in float32, bfloat16 or "
               "float16",
               Name(*options.weights_dtype)));
  }
  HEADROOM_RETURN_IF_ERROR(ReadFinetuning(arguments, recipe));
  // Which weights may be quantised depends on whether adapters are trained.
  HEADROOM_RETURN_IF_ERROR(ReadGeneration(arguments, options));
  HEADROOM_RETURN_IF_ERROR(ReadParallelOptions(arguments, options.parallel, recipe));
  HEADROOM_RETURN_IF_ERROR(ReadPlatform(arguments, options));
  return options;
}

}  // namespace headroom::cli
