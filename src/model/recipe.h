// SPDX-License-Identifier: Apache-2.0
//
// Recipe: how a model is trained or run, under the names of Hugging Face's TrainingArguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "model/lora_config.h"
#include "model/parallel.h"

namespace headroom {

// The AutoModelFor… class, by the task names of the Hugging Face hub and of hf_memory.jsonl.
enum class Task : uint8_t {
  kSequenceClassification,
  kTokenClassification,
  kCausalLm,
  kMaskedLm,
  kSeq2SeqLm,
  kImageClassification,
};
std::string_view Name(Task task);  // "sequence-classification", "causal-lm", …
std::optional<Task> ParseTask(std::string_view name);

// What the numbers are: bf16 and fp16 are autocast over weights in `weights_dtype`.
enum class Precision : uint8_t { kFp32, kTf32, kBf16, kFp16 };
std::string_view Name(Precision precision);  // "fp32", …
std::optional<Precision> ParsePrecision(std::string_view name);

// transformers' attn_implementation. kAuto: sdpa where the model class has it, else eager.
enum class AttnImplementation : uint8_t { kAuto, kEager, kSdpa, kFlashAttention2 };
std::string_view Name(AttnImplementation attn);
std::optional<AttnImplementation> ParseAttnImplementation(std::string_view name);

// TrainingArguments.optim values, as transformers spells them.
enum class Optim : uint8_t {
  kAdamWTorch,       // "adamw_torch": foreach
  kAdamWTorchFused,  // "adamw_torch_fused"
  kAdam,             // torch.optim.Adam, foreach; of the plain loop ("adam")
  kSgd,
  kAdafactor,
  kAdagrad,
  kRmsprop,
  // Of bitsandbytes; "paged" states lie in managed memory.
  kAdamW8bit,  // "adamw_bnb_8bit" ("adamw_8bit")
  kPagedAdamW8bit,
  kPagedAdamW32bit,
  kLion8bit,
  kLion32bit,
  kPagedLion8bit,
  kPagedLion32bit,
  kRmspropBnb8bit,
  kRmspropBnb32bit,  // "rmsprop_bnb_32bit" ("rmsprop_bnb")
  kAdEMAMix8bit,
  kAdEMAMix32bit,  // "ademamix"
  kPagedAdEMAMix8bit,
  kPagedAdEMAMix32bit,
};
std::string_view Name(Optim optim);
std::optional<Optim> ParseOptim(std::string_view name);
std::vector<std::string_view> OptimNames();

// What drives the steps: Trainer.train, a plain PyTorch loop with GradScaler, or model.generate.
enum class Driver : uint8_t { kTrainer, kTorchLoop, kGenerate };

// GenerationConfig.cache_implementation.
enum class CacheImplementation : uint8_t { kDynamic, kStatic };
std::string_view Name(CacheImplementation cache);  // "dynamic", "static"
std::optional<CacheImplementation> ParseCacheImplementation(std::string_view name);

// model.generate, under the names of GenerationConfig; the prompt has Recipe::sequence_length.
struct Generation {
  int64_t max_new_tokens = 20;
  int64_t num_beams = 1;
  bool do_sample = false;
  bool use_cache = true;
  bool min_new_tokens = false;  // min_new_tokens = max_new_tokens: no early end
  CacheImplementation cache = CacheImplementation::kDynamic;

  bool operator==(const Generation&) const = default;
};

// BitsAndBytesConfig: what the weights of linear layers are stored as.
struct Quantization {
  enum class Kind : uint8_t { kNone, kInt8, kFp4, kNf4 };
  Kind kind = Kind::kNone;
  bool double_quant = false;              // bnb_4bit_use_double_quant
  DType compute_dtype = DType::kFloat32;  // bnb_4bit_compute_dtype
  double int8_threshold = 6.0;            // llm_int8_threshold

  bool operator==(const Quantization&) const = default;
};
std::string_view Name(Quantization::Kind kind);  // "none", "int8", "fp4", "nf4"

// peft.prepare_model_for_kbit_training: what is not quantised goes to fp32. It may turn gradient
// checkpointing on, which the recipe then says.
struct KbitPreparation {
  bool input_require_grads = true;  // not with use_reentrant=False
  bool operator==(const KbitPreparation&) const = default;
};

// Where the weights come from: a model built on the host and moved with .to("cuda"), or
// from_pretrained with device_map, which reads each tensor straight onto the device.
enum class Loading : uint8_t { kModelToDevice, kDeviceMap };

// PretrainedConfig.problem_type of a sequence classifier.
enum class ProblemType : uint8_t { kRegression, kSingleLabel, kMultiLabel };
std::string_view Name(ProblemType type);  // "regression", "single_label_classification", …
std::optional<ProblemType> ParseProblemType(std::string_view name);

// Trainer's evaluation while it trains.
struct Evaluation {
  int64_t per_device_eval_batch_size = 8;  // TrainingArguments' default
  int64_t samples = 0;                     // in the evaluation set
  int64_t eval_steps = 1;                  // optimizer steps between two evaluations
  int64_t eval_accumulation_steps = 0;     // 0: None, results stay on the GPU until the end
  bool prediction_loss_only = false;
  bool compute_metrics = false;  // without it Trainer keeps the loss alone

  bool operator==(const Evaluation&) const = default;
};

struct BatchShape {
  int64_t samples = 0;
  int64_t tokens = 0;  // per sample

  bool operator==(const BatchShape&) const = default;
};

struct Recipe {
  Task task = Task::kCausalLm;
  Driver driver = Driver::kTrainer;
  int64_t per_device_train_batch_size = 8;  // TrainingArguments' default
  int64_t sequence_length = 512;            // tokens per sample; 0 for images
  int64_t target_sequence_length = 0;       // seq2seq decoder; 0 means sequence_length
  Precision precision = Precision::kFp32;
  std::optional<DType> weights_dtype;  // the dtype the model is built in; unset: fp32
  Optim optim = Optim::kAdamWTorchFused;
  AttnImplementation attn_implementation = AttnImplementation::kAuto;
  bool gradient_checkpointing = false;
  bool use_reentrant = false;  // of gradient_checkpointing_kwargs
  int64_t gradient_accumulation_steps = 1;
  double max_grad_norm = 1.0;   // 0 turns clipping off
  bool attention_mask = false;  // the batch carries a mask of ones
  int steps = 3;                // optimizer steps to play; memory is steady from the third on
  Generation generation;        // of Driver::kGenerate
  Quantization quantization;
  Loading loading = Loading::kModelToDevice;
  std::optional<LoraConfig> lora;
  std::optional<KbitPreparation> kbit;
  std::optional<Evaluation> evaluation;
  int64_t torch_empty_cache_steps = 0;      // 0: None, never
  std::optional<ProblemType> problem_type;  // unset: what the config says
  bool sft_trainer = false;                 // TRL's SFTTrainer, whose head yields no logits
  Parallel parallel;
  // One batch a step, in order, in place of `steps` equal ones; empty: all alike.
  std::vector<BatchShape> batches;

  bool operator==(const Recipe&) const = default;
};

// Whether from_pretrained reads the weights straight onto the device, as it quantises them there.
bool ReadsOntoDevice(const Recipe& recipe);

}  // namespace headroom
