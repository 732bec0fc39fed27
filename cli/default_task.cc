// SPDX-License-Identifier: Apache-2.0
#include "default_task.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/format.h"

namespace headroom::cli {
namespace {

// How transformers 5.17.0 ends the names of its task classes (src/transformers/models/auto/
// modeling_auto.py). Pretraining heads (ForMaskedLM, ForPreTraining) are left out: a published
// encoder names the head it was made with, and those who train it put a classifier in its place.
constexpr std::pair<std::string_view, Task> kClassEndings[] = {
    {"ForSequenceClassification", Task::kSequenceClassification},
    {"ForTokenClassification", Task::kTokenClassification},
    {"ForCausalLM", Task::kCausalLm},
    {"LMHeadModel", Task::kCausalLm},
    {"ForImageClassification", Task::kImageClassification},
    {"MarianMTModel", Task::kSeq2SeqLm},
    {"ForConditionalGeneration", Task::kSeq2SeqLm},
};

constexpr std::pair<std::string_view, Task> kTypes[] = {
    {"albert", Task::kSequenceClassification},
    {"bart", Task::kSeq2SeqLm},
    {"bert", Task::kSequenceClassification},
    {"camembert", Task::kSequenceClassification},
    {"deberta", Task::kSequenceClassification},
    {"deberta-v2", Task::kSequenceClassification},
    {"deit", Task::kImageClassification},
    {"distilbert", Task::kSequenceClassification},
    {"electra", Task::kSequenceClassification},
    {"marian", Task::kSeq2SeqLm},
    {"mbart", Task::kSeq2SeqLm},
    {"modernbert", Task::kSequenceClassification},
    {"mt5", Task::kSeq2SeqLm},
    {"pegasus", Task::kSeq2SeqLm},
    {"roberta", Task::kSequenceClassification},
    {"t5", Task::kSeq2SeqLm},
    {"torch-transformer", Task::kSeq2SeqLm},
    {"vit", Task::kImageClassification},
    {"whisper", Task::kSeq2SeqLm},
    {"xlm-roberta", Task::kSequenceClassification},
};

std::optional<Task> TaskOfType(const std::string& model_type) {
  for (const auto& [type, task] : kTypes) {
    if (model_type == type) return task;
  }
  return std::nullopt;
}

}  // namespace

DefaultTask DefaultTaskOf(const ModelConfig& config) {
  const std::optional<Task> of_type = TaskOfType(config.model_type());
  for (const std::string& name : config.architectures()) {
    for (const auto& [ending, task] : kClassEndings) {
      if (!name.ends_with(ending)) continue;
      // "…ForConditionalGeneration" also names decoders of vision-language models.
      const bool decoder = task == Task::kSeq2SeqLm && of_type != Task::kSeq2SeqLm;
      return {decoder ? Task::kCausalLm : task, Format("the config names {}", name)};
    }
  }
  return {of_type.value_or(Task::kCausalLm),
          Format("what {} models are mostly trained for", config.model_type())};
}

}  // namespace headroom::cli
