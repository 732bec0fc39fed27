// SPDX-License-Identifier: Apache-2.0
#include "finetuning_options.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "model/lora_config.h"
#include "output.h"

namespace headroom::cli {
namespace {

constexpr Bytes kLargestConfig = MiB(1);

constexpr Flag kLoraFlags[] = {
    {"--lora", Takes::kNothing, "", "freeze the model and train LoRA adapters (PEFT)"},
    {"--lora-r", Takes::kValue, "N", "rank (default 8, as LoraConfig)"},
    {"--lora-alpha", Takes::kValue, "X", "lora_alpha (default 8); decides no memory"},
    {"--lora-dropout", Takes::kValue, "P", "dropout before the adapters (default 0)"},
    {"--lora-target-modules,--target-modules", Takes::kValue, "NAMES",
     "q_proj,v_proj or all-linear (default: what PEFT picks for the model type)"},
    {"--lora-bias", Takes::kValue, "WHICH", "none (default), all or lora_only"},
    {"--lora-modules-to-save,--modules-to-save", Takes::kValue, "NAMES",
     "modules that are trained in full beside the adapters"},
    {"--lora-config", Takes::kValue, "FILE", "adapter_config.json; flags win over the file"},
};
constexpr Flag kEvaluationFlags[] = {
    {"--do-eval", Takes::kNothing, "", "evaluate while training; needs --eval-samples"},
    {"--eval-samples", Takes::kValue, "N", "samples in the evaluation set"},
    {"--eval-steps", Takes::kValue, "N",
     "optimizer steps between evaluations (default: after the last)"},
    {"--per-device-eval-batch-size,--eval-batch", Takes::kValue, "N",
     "samples in an evaluation pass (default 8, as TrainingArguments)"},
    {"--eval-accumulation-steps", Takes::kValue, "N",
     "passes until the results go to the host (default: all stay on the GPU)"},
    {"--prediction-loss-only", Takes::kNothing, "", "no compute_metrics: logits are not kept"},
};

// What asks for LoRA, and what needs it.
constexpr std::string_view kLoraNames[] = {
    "--lora",
    "--lora-r",
    "--lora-alpha",
    "--lora-dropout",
    "--lora-target-modules",
    "--lora-bias",
    "--lora-config",
    "--lora-modules-to-save",
};
constexpr std::string_view kEvaluationNames[] = {
    "--eval-samples",
    "--eval-steps",
    "--per-device-eval-batch-size",
    "--eval-accumulation-steps",
    "--prediction-loss-only",
};

std::string Shown(int64_t value) { return Thousands(value); }
std::string Shown(double value) { return Format("{}", value); }

template <typename Number>
Status MaybeNumber(const Arguments& arguments, std::string_view flag, Number smallest,
                   Number largest, Number& target) {
  const std::optional<std::string> text = arguments.Value(flag);
  if (!text) return {};
  Number value{};
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), value);
  const bool read = failure == std::errc() && end == text->data() + text->size();
  if (!read || !(value >= smallest && value <= largest)) {
    return Error::BadInput(Format("{} {}: must be a number from {} to {}", flag, *text,
                                  Shown(smallest), Shown(largest)));
  }
  target = value;
  return {};
}

std::vector<std::string> SplitAtCommas(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    if (!part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

Status ReadNames(const Arguments& arguments, LoraConfig& lora) {
  if (const auto targets = arguments.Value("--lora-target-modules")) {
    const std::vector<std::string> names = SplitAtCommas(*targets);
    if (names.empty()) {
      return Error::BadInput("--lora-target-modules: no names: write q_proj,v_proj or all-linear");
    }
    lora.target_modules.reset();
    lora.target_pattern.reset();
    if (names.size() == 1 && names[0] == "all-linear") {
      lora.target_pattern = names[0];
    } else {
      lora.target_modules = names;
    }
  }
  if (const auto saved = arguments.Value("--lora-modules-to-save")) {
    lora.modules_to_save = SplitAtCommas(*saved);
  }
  return {};
}

Status ReadBias(const Arguments& arguments, LoraConfig& lora) {
  const std::optional<std::string> text = arguments.Value("--lora-bias");
  if (!text) return {};
  const std::optional<LoraConfig::Bias> bias = ParseLoraBias(*text);
  if (!bias) {
    return Error::BadInput(
        Format("--lora-bias {}: unknown: choose one of none, all, lora_only", *text));
  }
  lora.bias = *bias;
  return {};
}

Status ReadLora(const Arguments& arguments, Recipe& recipe) {
  const bool asked =
      std::ranges::any_of(kLoraNames, [&](std::string_view name) { return arguments.Has(name); });
  if (!asked) return {};
  LoraConfig lora;
  if (const auto path = arguments.Value("--lora-config")) {
    HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadFile(*path, kLargestConfig));
    Result<LoraConfig> read = ParseLoraConfig(text);
    if (!read.ok()) return read.error().In(*path);
    lora = *std::move(read);
  }
  HEADROOM_RETURN_IF_ERROR(
      MaybeNumber<int64_t>(arguments, "--lora-r", 1, int64_t{1} << 20, lora.r));
  HEADROOM_RETURN_IF_ERROR(MaybeNumber<double>(arguments, "--lora-alpha", 0, 1e9, lora.lora_alpha));
  HEADROOM_RETURN_IF_ERROR(
      MaybeNumber<double>(arguments, "--lora-dropout", 0, 0.99, lora.lora_dropout));
  HEADROOM_RETURN_IF_ERROR(ReadNames(arguments, lora));
  HEADROOM_RETURN_IF_ERROR(ReadBias(arguments, lora));
  recipe.lora = std::move(lora);
  return {};
}

Status ReadEvaluation(const Arguments& arguments, Recipe& recipe) {
  if (!arguments.Has("--do-eval")) {
    for (const std::string_view name : kEvaluationNames) {
      if (!arguments.Has(name)) continue;
      return Error::BadInput(Format("{} says how to evaluate: add --do-eval", name));
    }
    return {};
  }
  constexpr int64_t kMost = int64_t{1} << 31;
  // Every pass over them is played.
  constexpr int64_t kMostSamples = int64_t{1} << 20;
  Evaluation evaluation;
  evaluation.eval_steps = recipe.steps;
  HEADROOM_RETURN_IF_ERROR(
      MaybeNumber<int64_t>(arguments, "--eval-samples", 1, kMostSamples, evaluation.samples));
  HEADROOM_RETURN_IF_ERROR(
      MaybeNumber<int64_t>(arguments, "--eval-steps", 1, kMost, evaluation.eval_steps));
  HEADROOM_RETURN_IF_ERROR(MaybeNumber<int64_t>(arguments, "--per-device-eval-batch-size", 1,
                                                1 << 20, evaluation.per_device_eval_batch_size));
  HEADROOM_RETURN_IF_ERROR(MaybeNumber<int64_t>(arguments, "--eval-accumulation-steps", 1, kMost,
                                                evaluation.eval_accumulation_steps));
  evaluation.prediction_loss_only = arguments.Has("--prediction-loss-only");
  evaluation.compute_metrics = !evaluation.prediction_loss_only;
  if (evaluation.samples == 0) {
    // Where only the loss is kept a pass is like the next, and one full and one more show all.
    if (evaluation.compute_metrics) {
      return Error::BadInput(
          "--do-eval keeps the logits of the whole evaluation set: say how large it is with "
          "--eval-samples, or add --prediction-loss-only");
    }
    evaluation.samples = 2 * evaluation.per_device_eval_batch_size;
  }
  recipe.evaluation = evaluation;
  return {};
}

}  // namespace

std::span<const Flag> LoraFlags() { return kLoraFlags; }
std::span<const Flag> EvaluationFlags() { return kEvaluationFlags; }

Status ReadFinetuning(const Arguments& arguments, Recipe& recipe) {
  HEADROOM_RETURN_IF_ERROR(ReadLora(arguments, recipe));
  HEADROOM_RETURN_IF_ERROR(ReadEvaluation(arguments, recipe));
  return MaybeNumber<int64_t>(arguments, "--torch-empty-cache-steps", 1, int64_t{1} << 31,
                              recipe.torch_empty_cache_steps);
}

}  // namespace headroom::cli
