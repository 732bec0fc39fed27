// SPDX-License-Identifier: Apache-2.0
#include "advise/realise.h"

#include <fmt/format.h>

#include <vector>

#include "base/format.h"

namespace headroom {
namespace {

std::string AllocConf(const Variant& variant, std::string_view given) {
  constexpr std::string_view kExpandable = "expandable_segments:True";
  const bool expandable =
      variant.allocator.backend == AllocatorOptions::Backend::kExpandableSegments;
  std::string conf(given);
  if (!expandable || conf.find("expandable_segments") != std::string::npos) return conf;
  return conf.empty() ? std::string(kExpandable) : Format("{},{}", kExpandable, conf);
}

std::string Flags(const Variant& variant, const std::string& alloc_conf) {
  const Recipe& r = variant.recipe;
  std::vector<std::string> flags = {Format("--task {}", Name(r.task)),
                                    Format("--batch {}", r.per_device_train_batch_size)};
  if (r.sequence_length > 0) flags.push_back(Format("--seq {}", r.sequence_length));
  if (r.target_sequence_length > 0) {
    flags.push_back(Format("--target-seq {}", r.target_sequence_length));
  }
  if (r.gradient_accumulation_steps > 1) {
    flags.push_back(Format("--accum {}", r.gradient_accumulation_steps));
  }
  if (r.attention_mask) flags.emplace_back("--attention-mask");
  flags.push_back(Format("--{}", Name(r.precision)));
  flags.push_back(Format("--dtype {}", Name(r.weights_dtype.value_or(DType::kFloat32))));
  flags.push_back(Format("--optim {}", Name(r.optim)));
  if (r.attn_implementation != AttnImplementation::kAuto) {
    flags.push_back(Format("--attn {}", Name(r.attn_implementation)));
  }
  if (r.gradient_checkpointing) {
    flags.emplace_back(r.use_reentrant ? "--gradient-checkpointing=reentrant"
                                       : "--gradient-checkpointing");
  }
  if (r.max_grad_norm != 1.0) flags.push_back(Format("--max-grad-norm {}", r.max_grad_norm));
  if (!alloc_conf.empty()) flags.push_back(Format("--alloc-conf {}", alloc_conf));
  return Format("{}", fmt::join(flags, " "));
}

std::string TrainingArguments(const Recipe& r) {
  std::vector<std::string> words = {
      Format("per_device_train_batch_size={}", r.per_device_train_batch_size)};
  if (r.gradient_accumulation_steps > 1) {
    words.push_back(Format("gradient_accumulation_steps={}", r.gradient_accumulation_steps));
  }
  if (r.precision != Precision::kFp32) words.push_back(Format("{}=True", Name(r.precision)));
  words.push_back(Format("optim=\"{}\"", Name(r.optim)));
  if (r.gradient_checkpointing) {
    words.emplace_back("gradient_checkpointing=True");
    words.push_back(Format("gradient_checkpointing_kwargs={{\"use_reentrant\": {}}}",
                           r.use_reentrant ? "True" : "False"));
  }
  if (r.max_grad_norm != 1.0) words.push_back(Format("max_grad_norm={}", r.max_grad_norm));
  return Format("TrainingArguments({})", fmt::join(words, ", "));
}

std::string FromPretrained(const Recipe& r) {
  std::vector<std::string> words;
  if (r.weights_dtype && IsHalf(*r.weights_dtype)) {
    words.push_back(Format("dtype=\"{}\"", Name(*r.weights_dtype)));
  }
  if (r.attn_implementation != AttnImplementation::kAuto) {
    words.push_back(Format("attn_implementation=\"{}\"", Name(r.attn_implementation)));
  }
  return Format("{}", fmt::join(words, ", "));
}

}  // namespace

Realisation Realise(const Variant& variant, std::string_view given) {
  const std::string conf = AllocConf(variant, given);
  return {Flags(variant, conf), TrainingArguments(variant.recipe), FromPretrained(variant.recipe),
          conf.empty() ? "" : Format("PYTORCH_ALLOC_CONF={}", conf)};
}

}  // namespace headroom
