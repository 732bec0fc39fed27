// SPDX-License-Identifier: Apache-2.0
#include "advise/realise.h"

#include <fmt/format.h>

#include <optional>
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

using Words = std::vector<std::string>;

void AddLora(const LoraConfig& lora, Words& flags) {
  flags.push_back(Format("--lora --lora-r {} --lora-alpha {:g}", lora.r, lora.lora_alpha));
  if (lora.lora_dropout > 0) flags.push_back(Format("--lora-dropout {:g}", lora.lora_dropout));
  if (lora.target_pattern) {
    flags.push_back(Format("--lora-target-modules {}", *lora.target_pattern));
  } else if (lora.target_modules) {
    flags.push_back(Format("--lora-target-modules {}", fmt::join(*lora.target_modules, ",")));
  }
  if (lora.bias != LoraConfig::Bias::kNone) {
    flags.push_back(Format("--lora-bias {}", Name(lora.bias)));
  }
  if (!lora.modules_to_save.empty()) {
    flags.push_back(Format("--lora-modules-to-save {}", fmt::join(lora.modules_to_save, ",")));
  }
}

void AddEvaluation(const Evaluation& evaluation, Words& flags) {
  flags.push_back(Format("--do-eval --eval-samples {} --eval-steps {} --eval-batch {}",
                         evaluation.samples, evaluation.eval_steps,
                         evaluation.per_device_eval_batch_size));
  if (evaluation.eval_accumulation_steps > 0) {
    flags.push_back(Format("--eval-accumulation-steps {}", evaluation.eval_accumulation_steps));
  }
  if (evaluation.prediction_loss_only) flags.emplace_back("--prediction-loss-only");
}

void AddGeneration(const Generation& generation, Words& flags) {
  flags.push_back(Format("--generate --max-new-tokens {}", generation.max_new_tokens));
  if (generation.num_beams > 1) flags.push_back(Format("--num-beams {}", generation.num_beams));
  if (generation.do_sample) flags.emplace_back("--do-sample");
  if (!generation.use_cache) flags.emplace_back("--cache-implementation none");
  if (generation.use_cache && generation.cache == CacheImplementation::kStatic) {
    flags.emplace_back("--cache-implementation static");
  }
}

void AddQuantization(const Quantization& quantization, Words& flags) {
  if (quantization.kind == Quantization::Kind::kNone) return;
  if (quantization.kind == Quantization::Kind::kInt8) {
    flags.emplace_back("--load-in-8bit");
    return;
  }
  flags.push_back(Format("--load-in-4bit --bnb-4bit-quant-type {} --bnb-4bit-compute-dtype {}",
                         Name(quantization.kind), Name(quantization.compute_dtype)));
  if (quantization.double_quant) flags.emplace_back("--bnb-4bit-use-double-quant");
}

// What only a training step has.
void AddTraining(const Recipe& r, Words& flags) {
  if (r.gradient_accumulation_steps > 1) {
    flags.push_back(Format("--accum {}", r.gradient_accumulation_steps));
  }
  if (r.attention_mask) flags.emplace_back("--attention-mask");
  flags.push_back(Format("--{}", Name(r.precision)));
  flags.push_back(Format("--optim {}", Name(r.optim)));
  if (r.gradient_checkpointing) {
    flags.emplace_back(r.use_reentrant ? "--gradient-checkpointing=reentrant"
                                       : "--gradient-checkpointing");
  }
  if (r.max_grad_norm != 1.0) flags.push_back(Format("--max-grad-norm {}", r.max_grad_norm));
  if (r.torch_empty_cache_steps > 0) {
    flags.push_back(Format("--torch-empty-cache-steps {}", r.torch_empty_cache_steps));
  }
  if (r.lora) AddLora(*r.lora, flags);
  if (r.evaluation) AddEvaluation(*r.evaluation, flags);
}

std::string Flags(const Variant& variant, const std::string& alloc_conf) {
  const Recipe& r = variant.recipe;
  Words flags = {Format("--task {}", Name(r.task)),
                 Format("--batch {}", r.per_device_train_batch_size)};
  if (r.sequence_length > 0) flags.push_back(Format("--seq {}", r.sequence_length));
  if (r.target_sequence_length > 0) {
    flags.push_back(Format("--target-seq {}", r.target_sequence_length));
  }
  flags.push_back(Format("--dtype {}", Name(r.weights_dtype.value_or(DType::kFloat32))));
  if (r.attn_implementation != AttnImplementation::kAuto) {
    flags.push_back(Format("--attn {}", Name(r.attn_implementation)));
  }
  if (r.driver == Driver::kGenerate) {
    AddGeneration(r.generation, flags);
  } else {
    AddTraining(r, flags);
  }
  AddQuantization(r.quantization, flags);
  if (r.loading == Loading::kDeviceMap) flags.emplace_back("--load-with device-map");
  if (!alloc_conf.empty()) flags.push_back(Format("--alloc-conf {}", alloc_conf));
  return Format("{}", fmt::join(flags, " "));
}

// PEFT's LoraConfig, as Python.
std::string LoraText(const std::optional<LoraConfig>& lora) {
  if (!lora) return "";
  const auto quoted = [](const std::vector<std::string>& names) {
    return Format("[\"{}\"]", fmt::join(names, "\", \""));
  };
  Words words = {Format("r={}", lora->r), Format("lora_alpha={:g}", lora->lora_alpha)};
  if (lora->lora_dropout > 0) words.push_back(Format("lora_dropout={:g}", lora->lora_dropout));
  if (lora->target_pattern) words.push_back(Format("target_modules=\"{}\"", *lora->target_pattern));
  if (lora->target_modules) {
    words.push_back(Format("target_modules={}", quoted(*lora->target_modules)));
  }
  if (lora->bias != LoraConfig::Bias::kNone) {
    words.push_back(Format("bias=\"{}\"", Name(lora->bias)));
  }
  if (!lora->modules_to_save.empty()) {
    words.push_back(Format("modules_to_save={}", quoted(lora->modules_to_save)));
  }
  return Format("LoraConfig({})", fmt::join(words, ", "));
}

std::string TrainingArguments(const Recipe& r) {
  if (r.driver == Driver::kGenerate) return "";
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
  if (r.torch_empty_cache_steps > 0) {
    words.push_back(Format("torch_empty_cache_steps={}", r.torch_empty_cache_steps));
  }
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
          LoraText(variant.recipe.lora), conf.empty() ? "" : Format("PYTORCH_ALLOC_CONF={}", conf)};
}

}  // namespace headroom
