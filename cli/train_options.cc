// SPDX-License-Identifier: Apache-2.0
#include "train_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/format.h"
#include "base/nearest.h"
#include "model/training_arguments.h"
#include "output.h"
#include "plan_options.h"

namespace headroom::cli {
namespace {

constexpr Flag kDataFlags[] = {
    {"--dataset", Takes::kValue, "NAME",
     "synthetic: rows of random tokens, as in Hugging Face's memory guide"},
    {"--dataset-rows", Takes::kValue, "N", "of the synthetic data (default 512)"},
    {"--train-file", Takes::kValue, "FILE",
     ".txt (a text, or a folder of them, for language models), .tsv (text and label, or source and "
     "target) or .jsonl (input_ids and labels)"},
    {"--validation-file", Takes::kValue, "FILE", "likewise, for evaluation"},
    {"--validation-split", Takes::kValue, "X",
     "share of the training data that is held back instead (default 0.05; 0: no evaluation)"},
    {"--tokenizer", Takes::kValue, "PATH",
     "tokenizer.json, vocab.txt or a folder (default: the model's; a language model without one "
     "learns byte-pair merges from its data)"},
    {"--task", Takes::kValue, "TASK",
     "causal-lm, masked-lm, sequence-classification or seq2seq-lm (default: what the config "
     "names)"},
};
constexpr Flag kBatchFlags[] = {
    {"--batch,--per-device-train-batch-size", Takes::kValue, "N",
     "samples in a forward pass (default 8)"},
    {"--seq,--max-length", Takes::kValue, "N", "tokens per sample at most (default: as the data)"},
    {"--target-seq", Takes::kValue, "N", "tokens of the decoder, likewise"},
    {"--accum,--gradient-accumulation-steps", Takes::kValue, "N",
     "forward passes per optimizer step (default 1)"},
    {"--epochs,--num-train-epochs", Takes::kValue, "X", "passes over the data (default 3)"},
    {"--max-steps", Takes::kValue, "N", "optimizer steps, in place of epochs"},
    {"--group-by-length", Takes::kNothing, "", "samples of like length share a batch"},
    {"--seed", Takes::kValue, "N", "of weights, order and dropout (default 42)"},
};
constexpr Flag kOptimizerFlags[] = {
    {"--optim", Takes::kValue, "NAME",
     "adamw_torch (default), adam, sgd or adamw_bnb_8bit (states of 8 bits)"},
    {"--lr,--learning-rate", Takes::kValue, "X", "default 5e-5"},
    {"--lr-scheduler-type", Takes::kValue, "NAME",
     "linear (default), cosine, constant, constant_with_warmup or noam"},
    {"--warmup-steps", Takes::kValue, "N", "optimizer steps, or a share below 1 (default 0)"},
    {"--weight-decay", Takes::kValue, "X", "of matrices (default 0)"},
    {"--max-grad-norm", Takes::kValue, "X", "gradient clipping (default 1.0; 0 turns it off)"},
    {"--adam-beta1", Takes::kValue, "X", "default 0.9"},
    {"--adam-beta2", Takes::kValue, "X", "default 0.999"},
    {"--adam-epsilon", Takes::kValue, "X", "default 1e-8"},
    {"--momentum", Takes::kValue, "X", "of sgd (default 0)"},
    {"--label-smoothing-factor", Takes::kValue, "X", "default 0"},
};
constexpr Flag kMemoryFlags[] = {
    {"--bf16", Takes::kNothing, "", "16-bit weights and activations, float32 masters"},
    {"--fp16", Takes::kNothing, "", "likewise in float16, with gradient scaling"},
    {"--fp32", Takes::kNothing, "", "float32 throughout (default)"},
    {"--tf32", Takes::kNothing, "", "likewise, products in TF32 on a GPU"},
    {"--lean", Takes::kNothing, "",
     "16-bit weights without float32 masters, stochastically rounded; with --bf16"},
    {"--no-stochastic-rounding", Takes::kNothing, "",
     "rounds them to nearest, which loses updates below half a last place"},
    {"--recompute", Takes::kValue, "WHAT",
     "none (default), cheap (norms and activation functions) or block (each layer again)"},
    {"--gradient-checkpointing", Takes::kNothing, "", "the same as --recompute block"},
    {"--loss-chunk-rows", Takes::kValue, "N",
     "logits of so many rows exist at a time (default 512)"},
    {"--memory-budget", Takes::kValue, "SIZE",
     "use at most so much, like 2GiB: picks the cheapest of the above that fits"},
    {"--deterministic,--full-determinism", Takes::kNothing, "",
     "--memory-budget changes no bit of the run: it recomputes, and keeps the batch"},
    kDeviceFlag,
};
constexpr Flag kRunFlags[] = {
    {"--output-dir", Takes::kValue, "FOLDER", "checkpoints, and the model at the end"},
    {"--resume-from-checkpoint", Takes::kOptionalValue, "FOLDER",
     "goes on from it, or from the newest in --output-dir"},
    {"--from-scratch", Takes::kNothing, "", "initialised weights, whatever MODEL's folder holds"},
    {"--save-steps", Takes::kValue, "N", "a checkpoint every N steps (default: at the end)"},
    {"--save-total-limit", Takes::kValue, "N", "the newest N are kept (default: all)"},
    {"--eval-steps", Takes::kValue, "N", "evaluation every N steps (default: at the end)"},
    {"--logging-steps", Takes::kValue, "N", "a line every N steps (default 10)"},
    {"--args", Takes::kValue, "FILE", "TrainingArguments as JSON or YAML; flags win"},
    {"--dry-run", Takes::kNothing, "", "prints the plan and stops"},
    {"--by-module", Takes::kNothing, "", "also the tree of modules, with bytes by component"},
    {"--samples", Takes::kValue, "N",
     "show what the trained language model writes for N validation examples"},
    {"--log", Takes::kValue, "FILE", "every step as a line of .csv or .jsonl"},
    {"--html", Takes::kValue, "FILE", "the plan and the curves of the run as a page"},
    {"--json", Takes::kNothing, "", "one JSON object at the end; progress goes to stderr"},
    kColorFlag,
};
const FlagGroup kGroups[] = {
    {"Data", kDataFlags},
    {"Batches and steps", kBatchFlags},
    {"Optimizer", kOptimizerFlags},
    {"Memory", kMemoryFlags},
    {"Run", kRunFlags},
};
const Syntax kSyntax = {
    .command = "train",
    .summary =
        "Trains a Transformer natively, in an arena whose size is printed before anything is "
        "allocated, and kept. Needs neither Python nor PyTorch; reads and writes Hugging Face's "
        "files.",
    .positional = "MODEL",
    .positional_help =
        "a config.json, a folder that holds one (and model.safetensors, whose weights are "
        "fine-tuned), or a name that headroom models lists",
    .groups = kGroups,
    .examples =
        "  headroom train bert-base-uncased --dataset synthetic --batch 4 --seq 128 --dry-run\n"
        "  headroom train ./minilm --train-file reviews.tsv --task sequence-classification \\\n"
        "    --epochs 2 --lr 3e-5 --output-dir out\n"
        "  headroom train config.json --train-file book.txt --seq 256 --max-steps 500 \\\n"
        "    --memory-budget 1GiB --output-dir out\n",
};

// A value is a flag's, or the file's under the name of TrainingArguments.
class Values {
 public:
  Values(const Arguments& arguments, std::map<std::string, std::string> file)
      : arguments_(arguments), file_(std::move(file)) {}

  std::optional<std::string> Text(std::string_view flag, std::string_view field) const {
    if (std::optional<std::string> given = arguments_.Value(flag)) return given;
    const auto found = file_.find(std::string(field));
    return found == file_.end() ? std::nullopt : std::optional(found->second);
  }

  Status Count(std::string_view flag, std::string_view field, Range range, int64_t& target) const {
    const std::optional<std::string> text = Text(flag, field);
    if (!text) return {};
    HEADROOM_ASSIGN_OR_RETURN(target, ReadCount(flag, *text, range));
    return {};
  }

  Status Number(std::string_view flag, std::string_view field, double smallest, double largest,
                double& target) const {
    const std::optional<std::string> text = Text(flag, field);
    if (!text) return {};
    double value = 0;
    const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (failure != std::errc() || end != text->data() + text->size() || !std::isfinite(value) ||
        value < smallest || value > largest) {
      return Error::BadInput(
          Format("{} {}: must be a number from {} to {}", flag, *text, smallest, largest));
    }
    target = value;
    return {};
  }

  bool Truth(std::string_view flag, std::string_view field) const {
    if (arguments_.Has(flag)) return true;
    const auto found = file_.find(std::string(field));
    return found != file_.end() && found->second == "true";
  }

 private:
  const Arguments& arguments_;
  std::map<std::string, std::string> file_;
};

Status Unknown(std::string_view flag, const std::string& text,
               const std::vector<std::string_view>& names) {
  const std::string near = DidYouMean(text, names);
  std::string all;
  for (const std::string_view name : names) all += (all.empty() ? "" : ", ") + std::string(name);
  return Error::BadInput(
      Format("{} {}: unknown{}", flag, text, near.empty() ? ": choose one of " + all : near));
}

Status ReadOptimizer(const Values& values, TrainCommand& command) {
  engine::TrainOptions& train = command.train;
  if (const std::optional<std::string> name = values.Text("--optim", "optim")) {
    using graph::OptimizerKind;
    if (*name == "adamw_torch" || *name == "adamw_torch_fused" || *name == "adamw") {
      train.optimizer.kind = OptimizerKind::kAdamW;
    } else if (*name == "adamw_bnb_8bit" || *name == "adamw_8bit") {
      train.optimizer.eight_bit = true;
    } else if (*name == "adam") {
      train.optimizer.kind = OptimizerKind::kAdam;
    } else if (*name == "sgd") {
      train.optimizer.kind = OptimizerKind::kSgd;
    } else {
      return Unknown("--optim", *name, {"adamw_torch", "adamw_bnb_8bit", "adam", "sgd"});
    }
  }
  if (const auto name = values.Text("--lr-scheduler-type", "lr_scheduler_type")) {
    const std::optional<engine::ScheduleKind> kind = engine::ParseScheduleKind(*name);
    if (!kind) return Unknown("--lr-scheduler-type", *name, engine::ScheduleNames());
    train.lr_scheduler_type = *kind;
    // d_model^-0.5 is a rate already.
    if (*kind == engine::ScheduleKind::kNoam) train.learning_rate = 1;
  }
  double momentum = 0;
  constexpr double kOne = 1.0 - std::numeric_limits<double>::epsilon();
  HEADROOM_RETURN_IF_ERROR(values.Number("--lr", "learning_rate", 0, 1e6, train.learning_rate));
  HEADROOM_RETURN_IF_ERROR(
      values.Number("--warmup-steps", "warmup_steps", 0, 1e9, train.warmup_steps));
  HEADROOM_RETURN_IF_ERROR(
      values.Number("--weight-decay", "weight_decay", 0, 1e3, train.weight_decay));
  HEADROOM_RETURN_IF_ERROR(
      values.Number("--max-grad-norm", "max_grad_norm", 0, 1e9, train.max_grad_norm));
  HEADROOM_RETURN_IF_ERROR(values.Number("--adam-beta1", "adam_beta1", 0, kOne, train.adam_beta1));
  HEADROOM_RETURN_IF_ERROR(values.Number("--adam-beta2", "adam_beta2", 0, kOne, train.adam_beta2));
  HEADROOM_RETURN_IF_ERROR(
      values.Number("--adam-epsilon", "adam_epsilon", 0, 1, train.adam_epsilon));
  HEADROOM_RETURN_IF_ERROR(values.Number("--momentum", "", 0, kOne, momentum));
  train.optimizer.momentum = static_cast<float>(momentum);
  return values.Number("--label-smoothing-factor", "label_smoothing_factor", 0, kOne,
                       train.label_smoothing_factor);
}

// Far beyond any memory; sizes of what is larger would not fit 64 bits for the largest models.
Status CheckForwardPass(const engine::TrainOptions& train) {
  constexpr int64_t kMostTokens = int64_t{1} << 32;
  const int64_t longest =
      std::max({train.sequence_length, train.target_sequence_length, int64_t{1}});
  if (train.per_device_train_batch_size <= kMostTokens / longest) return {};
  return Error::BadInput(Format("--batch {} of {} tokens: {} tokens in a forward pass are the most",
                                train.per_device_train_batch_size, longest, kMostTokens));
}

Status ReadSteps(const Values& values, TrainCommand& command) {
  engine::TrainOptions& train = command.train;
  constexpr Range kBatch = {1, 1 << 20};
  constexpr Range kTokens = {1, 1 << 24};
  constexpr Range kSteps = {1, int64_t{1} << 40};
  HEADROOM_RETURN_IF_ERROR(values.Count("--batch", "per_device_train_batch_size", kBatch,
                                        train.per_device_train_batch_size));
  HEADROOM_RETURN_IF_ERROR(values.Count("--seq", "max_length", kTokens, train.sequence_length));
  HEADROOM_RETURN_IF_ERROR(values.Count("--target-seq", "", kTokens, train.target_sequence_length));
  HEADROOM_RETURN_IF_ERROR(values.Count("--accum", "gradient_accumulation_steps", {1, 1 << 16},
                                        train.gradient_accumulation_steps));
  HEADROOM_RETURN_IF_ERROR(
      values.Number("--epochs", "num_train_epochs", 1e-6, 1e9, train.num_train_epochs));
  // -1 is TrainingArguments' way to leave it out.
  if (values.Text("--max-steps", "max_steps").value_or("") != "-1") {
    HEADROOM_RETURN_IF_ERROR(values.Count("--max-steps", "max_steps", kSteps, train.max_steps));
  }
  int64_t seed = 42;
  HEADROOM_RETURN_IF_ERROR(values.Count("--seed", "seed", {0, (int64_t{1} << 53)}, seed));
  train.seed = static_cast<uint64_t>(seed);
  train.group_by_length =
      values.Truth("--group-by-length", "group_by_length") ||
      values.Text("", "train_sampling_strategy").value_or("") == "group_by_length";
  HEADROOM_RETURN_IF_ERROR(CheckForwardPass(train));
  HEADROOM_RETURN_IF_ERROR(
      values.Count("--logging-steps", "logging_steps", kSteps, train.logging_steps));
  HEADROOM_RETURN_IF_ERROR(values.Count("--eval-steps", "eval_steps", kSteps, train.eval_steps));
  HEADROOM_RETURN_IF_ERROR(values.Count("--save-steps", "save_steps", kSteps, train.save_steps));
  return values.Count("--save-total-limit", "save_total_limit", kSteps, train.save_total_limit);
}

Status ReadPrecision(const Arguments& arguments, const Values& values, TrainCommand& command) {
  engine::TrainOptions& train = command.train;
  int given = 0;
  for (const char* flag : {"--bf16", "--fp16", "--fp32", "--tf32"})
    given += arguments.Has(flag) ? 1 : 0;
  if (given > 1) {
    return Error::BadInput("--bf16, --fp16, --fp32 and --tf32 contradict each other: keep one");
  }
  const bool of_file = given == 0;
  if (arguments.Has("--bf16") || (of_file && values.Truth("--bf16", "bf16"))) {
    train.precision = Precision::kBf16;
  }
  if (arguments.Has("--fp16") || (of_file && values.Truth("--fp16", "fp16"))) {
    train.precision = Precision::kFp16;
  }
  if (arguments.Has("--tf32") || (of_file && values.Truth("--tf32", "tf32"))) {
    if (train.precision == Precision::kFp32) train.precision = Precision::kTf32;
  }
  train.lean = arguments.Has("--lean");
  if (train.lean && train.precision != Precision::kBf16) {
    return Error::BadInput("--lean keeps weights in bfloat16 alone: add --bf16");
  }
  train.optimizer.stochastic_rounding = !arguments.Has("--no-stochastic-rounding");
  if (!train.optimizer.stochastic_rounding && !train.lean) {
    return Error::BadInput(
        "--no-stochastic-rounding changes how --lean rounds weights: add --lean, or leave it out");
  }
  if (values.Truth("--gradient-checkpointing", "gradient_checkpointing")) {
    train.recompute = graph::Recompute::kBlock;
  }
  if (const std::optional<std::string> name = arguments.Value("--recompute")) {
    const std::optional<graph::Recompute> recompute = graph::ParseRecompute(*name);
    if (!recompute) return Unknown("--recompute", *name, {"none", "cheap", "block"});
    train.recompute = *recompute;
  }
  return values.Count("--loss-chunk-rows", "", {1, 1 << 20}, train.loss_chunk_rows);
}

Status ReadData(const Arguments& arguments, const Values& values, TrainCommand& command) {
  if (const std::optional<std::string> name = arguments.Value("--dataset")) {
    if (*name != "synthetic") return Unknown("--dataset", *name, {"synthetic"});
    command.synthetic = true;
  }
  HEADROOM_RETURN_IF_ERROR(
      values.Count("--dataset-rows", "", {1, int64_t{1} << 32}, command.dataset_rows));
  command.train_file = arguments.Value("--train-file").value_or("");
  command.validation_file = arguments.Value("--validation-file").value_or("");
  command.tokenizer = arguments.Value("--tokenizer").value_or("");
  if (arguments.Has("--validation-split")) {
    double share = 0;
    HEADROOM_RETURN_IF_ERROR(values.Number("--validation-split", "", 0, 0.9, share));
    command.validation_split = share;
  }
  if (command.synthetic && !command.train_file.empty()) {
    return Error::BadInput("--dataset synthetic and --train-file contradict each other: keep one");
  }
  if (!command.synthetic && command.train_file.empty()) {
    return Error::BadInput(
        "nothing to train on: add --dataset synthetic, or --train-file with a .txt, .tsv or "
        ".jsonl");
  }
  if (command.synthetic && !command.validation_file.empty()) {
    return Error::BadInput(
        "--dataset synthetic and --validation-file contradict each other: add --validation-split");
  }
  if (!command.validation_file.empty() && command.validation_split) {
    return Error::BadInput(
        "--validation-file and --validation-split contradict each other: keep one");
  }
  if (const std::optional<std::string> name = arguments.Value("--task")) {
    command.task = ParseTask(*name);
    if (!command.task) {
      return Unknown("--task", *name,
                     {"causal-lm", "masked-lm", "sequence-classification", "seq2seq-lm"});
    }
  }
  return {};
}

Status ReadRun(const Arguments& arguments, const Values& values, TrainCommand& command) {
  command.train.output_dir = values.Text("--output-dir", "output_dir").value_or("");
  if (const auto folder = arguments.Value("--resume-from-checkpoint")) command.resume = *folder;
  if (command.resume && command.resume->empty() && command.train.output_dir.empty()) {
    return Error::BadInput(
        "--resume-from-checkpoint without a folder takes the newest checkpoint of --output-dir: "
        "add that");
  }
  HEADROOM_RETURN_IF_ERROR(values.Count("--samples", "", {1, 64}, command.train.samples));
  command.train.deterministic = values.Truth("--deterministic", "full_determinism");
  command.from_scratch = arguments.Has("--from-scratch");
  command.dry_run = arguments.Has("--dry-run");
  command.json = arguments.Has("--json");
  command.by_module = arguments.Has("--by-module");
  command.html = arguments.Value("--html").value_or("");
  command.log = arguments.Value("--log").value_or("");
  const std::filesystem::path page_folder = command.html.parent_path();
  std::error_code ignored;
  if (!page_folder.empty() && !std::filesystem::is_directory(page_folder, ignored)) {
    // Known before the training, not after it.
    return Error::BadInput(
        Format("--html {}: no folder {}", command.html.string(), page_folder.string()));
  }
  const std::string extension = command.log.extension().string();
  if (!command.log.empty() && extension != ".csv" && extension != ".jsonl") {
    return Error::BadInput(
        Format("--log {}: its name must end in .csv or .jsonl", command.log.string()));
  }
  if (const std::optional<std::string> text = arguments.Value("--memory-budget")) {
    const Result<Bytes> size = ParseBytes(*text);
    if (!size.ok()) return size.error().In("--memory-budget");
    command.memory_budget = *size;
  }
  HEADROOM_ASSIGN_OR_RETURN(command.device, ReadDevice(arguments));
  return {};
}

// What TrainingArguments has that would change a run of Trainer's, and does not change this one.
std::string NotFollowed(const std::map<std::string, std::string>& file) {
  constexpr std::string_view kNames[] = {
      "dataloader_drop_last", "eval_delay",   "eval_on_start", "lr_scheduler_kwargs",
      "optim_args",           "warmup_ratio", "data_seed",     "load_best_model_at_end"};
  std::string names;
  const auto add = [&](std::string_view name) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  };
  for (const std::string_view name : kNames) {
    const auto found = file.find(std::string(name));
    if (found != file.end() && found->second != "false") add(name);
  }
  for (const char* name : {"eval_strategy", "save_strategy"}) {
    const auto found = file.find(name);
    if (found != file.end() && found->second != "steps" && found->second != "no") add(name);
  }
  return names;
}

}  // namespace

const Syntax& TrainSyntax() { return kSyntax; }

Result<TrainCommand> ReadTrainCommand(const Arguments& arguments) {
  if (arguments.positional().empty()) {
    return Error::BadInput(
        "no model: write headroom train MODEL, for example headroom train config.json --dataset "
        "synthetic");
  }
  TrainCommand command;
  command.model = arguments.positional();
  std::map<std::string, std::string> file;
  if (const std::optional<std::string> path = arguments.Value("--args")) {
    HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadFile(*path, MiB(1)));
    HEADROOM_ASSIGN_OR_RETURN(TrainingArgumentsReading reading, ReadTrainingArguments(text, *path));
    file = std::move(reading.values);
    command.warnings = std::move(reading.warnings);
    if (std::string unused = NotFollowed(file); !unused.empty()) {
      command.warnings.push_back(Format("{}: {} {} no effect here", *path, unused,
                                        unused.find(',') == std::string::npos ? "has" : "have"));
    }
  }
  const Values values(arguments, std::move(file));
  HEADROOM_RETURN_IF_ERROR(ReadData(arguments, values, command));
  HEADROOM_RETURN_IF_ERROR(ReadOptimizer(values, command));
  HEADROOM_RETURN_IF_ERROR(ReadSteps(values, command));
  HEADROOM_RETURN_IF_ERROR(ReadPrecision(arguments, values, command));
  HEADROOM_RETURN_IF_ERROR(ReadRun(arguments, values, command));
  return command;
}

}  // namespace headroom::cli
