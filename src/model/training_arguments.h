// SPDX-License-Identifier: Apache-2.0
//
// Hugging Face TrainingArguments as a file: what of it decides memory, and what does not.
//
// JSON or flat YAML, with the field names of transformers 5.17.0 and, from TRL's SFTConfig,
// max_length (max_seq_length) for the tokens of a sample. Only what stands in the file changes a
// recipe:
//
//   per_device_train_batch_size: 4      -> recipe.per_device_train_batch_size = 4
//   bf16: true                          -> recipe.precision = kBf16
//   learning_rate: 5.0e-5               -> without_effect
//   torch_compile: true                 -> warnings: not modelled
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/recipe.h"

namespace headroom {

struct TrainingArgumentsReading {
  // Unset: not in the file.
  std::optional<int64_t> per_device_train_batch_size;
  std::optional<int64_t> gradient_accumulation_steps;
  std::optional<int64_t> sequence_length;
  std::optional<Precision> precision;  // fp32 when the file says false to bf16, fp16 and tf32
  std::optional<Optim> optim;
  std::optional<bool> gradient_checkpointing;
  std::optional<bool> use_reentrant;
  std::optional<double> max_grad_norm;
  std::optional<int64_t> torch_empty_cache_steps;

  // Numbers, texts and truth values of the file as text ("5e-05", "true"), by key.
  std::map<std::string, std::string> values;

  // Keys of the file that decide no memory, in alphabetical order.
  std::vector<std::string> without_effect;
  // One line each: keys that decide memory and are not modelled, and keys that stand twice.
  std::vector<std::string> warnings;

  // Changes of `recipe` what stands in the file and leaves the rest.
  void ApplyTo(Recipe& recipe) const;
};

// Reads `text`, JSON when it starts with a brace and YAML otherwise; `origin` names it in errors.
// Fails on what is neither, on keys that TrainingArguments does not have (naming the nearest), on
// values of the wrong type or out of range, on bf16 with fp16, on optimizers that are not modelled.
Result<TrainingArgumentsReading> ReadTrainingArguments(std::string_view text,
                                                       std::string_view origin);

// Whether the field is read, or warned of because it decides memory and is not modelled.
bool DecidesMemory(std::string_view field);

}  // namespace headroom
