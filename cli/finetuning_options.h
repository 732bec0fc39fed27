// SPDX-License-Identifier: Apache-2.0
//
// The flags of `plan` that say how a model is fine-tuned and evaluated: PEFT's LoRA under
// LoraConfig's names, Trainer's evaluation under TrainingArguments'.
#pragma once

#include <span>

#include "arguments.h"
#include "base/result.h"
#include "model/recipe.h"

namespace headroom::cli {

std::span<const Flag> LoraFlags();
std::span<const Flag> EvaluationFlags();

// Sets the recipe's lora and evaluation where a flag asks for them. The message of an error names
// the flag, the value and what to write instead.
Status ReadFinetuning(const Arguments& arguments, Recipe& recipe);

}  // namespace headroom::cli
