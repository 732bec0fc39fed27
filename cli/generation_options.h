// SPDX-License-Identifier: Apache-2.0
//
// The flags of `headroom plan --generate`, under the names of Hugging Face's GenerationConfig and
// BitsAndBytesConfig.
#pragma once

#include "arguments.h"
#include "base/result.h"
#include "plan_options.h"

namespace headroom::cli {

inline constexpr Flag kGenerationFlags[] = {
    {"--generate", Takes::kNothing, "",
     "model.generate instead of training; --seq (--prompt-length) is the prompt's length"},
    {"--max-new-tokens", Takes::kValue, "N", "tokens that follow the prompt (default 20)"},
    {"--num-beams", Takes::kValue, "K", "beam search with K beams (default 1: greedy)"},
    {"--do-sample", Takes::kNothing, "", "sampling, with GenerationConfig's top_k of 50"},
    {"--cache-implementation", Takes::kValue, "NAME",
     "dynamic (default), static or none: the KV cache"},
    {"--load-in-8bit", Takes::kNothing, "", "bitsandbytes LLM.int8() weights"},
    {"--load-in-4bit", Takes::kNothing, "", "bitsandbytes 4-bit weights"},
    {"--bnb-4bit-quant-type", Takes::kValue, "TYPE", "fp4 (default) or nf4"},
    {"--bnb-4bit-use-double-quant", Takes::kNothing, "", "quantise the scales as well"},
    {"--bnb-4bit-compute-dtype", Takes::kValue, "TYPE",
     "float32 (default), bfloat16 or float16: what 4-bit weights are multiplied in"},
    {"--load-with", Takes::kValue, "HOW",
     "to: model.to(\"cuda\") (default), or device-map: from_pretrained(device_map=\"cuda\"), as "
     "quantised weights always are"},
};

// Reads them into options.recipe. Fails on flags that need --generate or contradict each other.
Status ReadGeneration(const Arguments& arguments, PlanOptions& options);

}  // namespace headroom::cli
