// SPDX-License-Identifier: Apache-2.0
//
// A variant as what a user types: the flags of headroom, and the Python of a Trainer script.
#pragma once

#include <string>
#include <string_view>

#include "advise/levers.h"

namespace headroom {

struct Realisation {
  std::string flags;               // "--batch 4 --seq 512 --bf16 …"
  std::string training_arguments;  // "TrainingArguments(per_device_train_batch_size=4, bf16=True)";
                                   // empty of a generation
  std::string from_pretrained;     // 'dtype="bfloat16", attn_implementation="sdpa"'; may be empty
  std::string lora;                // "LoraConfig(r=16, …)"; empty without LoRA
  std::string environment;         // "PYTORCH_ALLOC_CONF=expandable_segments:True"; may be empty
};

// `alloc_conf`: PYTORCH_ALLOC_CONF as the user wrote it, kept where the variant keeps it.
Realisation Realise(const Variant& variant, std::string_view alloc_conf);

}  // namespace headroom
