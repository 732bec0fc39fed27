// SPDX-License-Identifier: Apache-2.0
#include "predict/predict.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "base/nearest.h"
#include "model/lora.h"
#include "model/parameter_table.h"
#include "predict/context.h"
#include "predict/generate.h"
#include "predict/load.h"
#include "predict/model.h"
#include "predict/modules.h"
#include "predict/parallel_notes.h"
#include "predict/runtime.h"
#include "predict/tensor_parallel.h"
#include "predict/torch_loop.h"
#include "predict/trainer.h"
#include "predict/wrapper.h"

namespace headroom {
namespace {

using predict::Architecture;

// The most elements a tensor of a run may have, so that no size overflows on the way.
constexpr int64_t kMostElements = int64_t{1} << 48;

Status CheckGenerationSizes(const ModelConfig& config, const Recipe& recipe, int64_t tokens_limit) {
  const int64_t longest = recipe.sequence_length + recipe.generation.max_new_tokens;
  const int64_t rows = recipe.per_device_train_batch_size * recipe.generation.num_beams;
  const int64_t heads = std::max<int64_t>(config.MaybeInt("num_attention_heads").value_or(1), 1);
  if (rows <= tokens_limit / longest && rows * longest <= kMostElements / longest / heads) {
    return {};
  }
  return Error::BadInput(
      "batch x beams x tokens is beyond any GPU (over 2^48 elements): lower --batch, --num-beams, "
      "--seq or --max-new-tokens");
}

Status CheckSizes(const ModelConfig& config, const Recipe& recipe) {
  const auto too_large = [](std::string_view what) {
    return Error::BadInput(
        Format("{} is beyond any GPU (over 2^48 elements): lower --batch or --seq", what));
  };
  if (recipe.per_device_train_batch_size < 1) {
    return Error::BadInput(Format("batch size {} is not positive: give --batch 1 or more",
                                  recipe.per_device_train_batch_size));
  }
  if (recipe.gradient_accumulation_steps < 1) {
    return Error::BadInput(Format("gradient_accumulation_steps {} is not positive",
                                  recipe.gradient_accumulation_steps));
  }
  if (recipe.steps < 1) return Error::BadInput("steps must be at least 1");
  if (recipe.task == Task::kImageClassification) return {};
  if (recipe.sequence_length < 1) {
    return Error::BadInput(
        Format("sequence length {} is not positive: give --seq 1 or more", recipe.sequence_length));
  }
  const int64_t widest = std::max({config.MaybeInt("vocab_size").value_or(1),
                                   config.MaybeInt("intermediate_size").value_or(1),
                                   4 * config.MaybeInt("hidden_size").value_or(1)});
  const int64_t tokens_limit = kMostElements / widest;
  if (recipe.driver == Driver::kGenerate) {
    return CheckGenerationSizes(config, recipe, tokens_limit);
  }
  if (recipe.per_device_train_batch_size > tokens_limit / recipe.sequence_length ||
      recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps > tokens_limit) {
    return too_large("batch x sequence");
  }
  const int64_t heads = config.MaybeInt("num_attention_heads").value_or(1);
  if (recipe.per_device_train_batch_size * recipe.sequence_length >
      kMostElements / std::max<int64_t>(heads * recipe.sequence_length, 1)) {
    return too_large("batch x heads x sequence x sequence");
  }
  return {};
}

// A table of learned position embeddings ends the sequences a model can read. Rotary and relative
// positions have no such end: transformers runs them beyond max_position_embeddings, and so do we.
Status CheckPositions(const ModelConfig& config, const Recipe& recipe,
                      const Architecture& architecture, const ParameterTable& table) {
  constexpr std::string_view kTables[] = {"position_embeddings.weight", "embed_positions.weight",
                                          "wpe.weight"};
  for (const ParameterSpec& entry : table.entries()) {
    const bool learned = std::any_of(
        std::begin(kTables), std::end(kTables),
        [&](std::string_view name) { return std::string_view(entry.name).ends_with(name); });
    if (!learned) continue;
    const int64_t rows = entry.shape[0] - architecture.reserved_positions(config);
    const int64_t positions =
        std::min(rows, config.MaybeInt("max_position_embeddings").value_or(rows));
    if (recipe.driver == Driver::kGenerate) {
      // The last token is chosen and never read.
      const int64_t fresh = recipe.generation.max_new_tokens;
      const int64_t longest = recipe.task == Task::kSeq2SeqLm
                                  ? std::max(recipe.sequence_length, fresh)
                                  : recipe.sequence_length + fresh - 1;
      if (longest <= positions) continue;
      return Error::BadInput(
          Format("a prompt of {} tokens and {} new ones are beyond the model's {} positions "
                 "(max_position_embeddings): lower --seq or --max-new-tokens",
                 recipe.sequence_length, recipe.generation.max_new_tokens, positions));
    }
    if (recipe.sequence_length <= positions) continue;
    return Error::BadInput(
        Format("sequence length {} is beyond the model's {} positions "
               "(max_position_embeddings): lower --seq",
               recipe.sequence_length, positions));
  }
  return {};
}

// Quantised weights take no gradient: Trainer refuses to train them without adapters.
Status CheckQuantizedTraining(const Recipe& recipe) {
  if (recipe.driver == Driver::kGenerate) return {};
  if (recipe.quantization.kind == Quantization::Kind::kNone) return {};
  if (!recipe.lora) return Error::BadInput("quantised weights cannot be trained: add --lora");
  if (recipe.task == Task::kCausalLm) return {};
  return Error::Unsupported(
      Format("QLoRA is modelled for causal-lm, not for {}: load the weights in 16 bit",
             Name(recipe.task)));
}

Status CheckPlatform(const Recipe& recipe, const Platform& platform) {
  if (recipe.precision == Precision::kBf16 && !platform.gpu.HasBf16()) {
    return Error::BadInput(Format("bf16 needs compute capability 8.0; {} has {}.{}: use --fp16",
                                  platform.gpu.name, platform.gpu.compute_major,
                                  platform.gpu.compute_minor));
  }
  if (recipe.precision == Precision::kTf32 && platform.gpu.compute_major < 8) {
    return Error::BadInput(Format("tf32 needs compute capability 8.0; {} has {}.{}: leave it out",
                                  platform.gpu.name, platform.gpu.compute_major,
                                  platform.gpu.compute_minor));
  }
  return {};
}

Result<AttnImplementation> ResolveAttention(const Architecture& architecture,
                                            const Recipe& recipe) {
  switch (recipe.attn_implementation) {
    case AttnImplementation::kAuto:
      return architecture.supports_sdpa ? AttnImplementation::kSdpa : AttnImplementation::kEager;
    case AttnImplementation::kSdpa:
      if (architecture.supports_sdpa) return AttnImplementation::kSdpa;
      return Error::BadInput(Format("model_type \"{}\" has no sdpa attention: use --attn eager",
                                    architecture.model_type));
    case AttnImplementation::kFlashAttention2:
      return Error::Unsupported(
          "flash_attention_2 (the flash-attn package) is not modelled: use sdpa");
    case AttnImplementation::kEager:
      return AttnImplementation::kEager;
  }
  return AttnImplementation::kEager;
}

// The plain loop's model is no transformers class, and the classes are trained by Trainer.
Status CheckDriver(const ModelConfig& config, const Recipe& recipe,
                   const Architecture& architecture) {
  const bool plain_model = config.model_type() == "torch-transformer";
  if (plain_model && recipe.driver == Driver::kTrainer) {
    return Error::BadInput(
        "model_type \"torch-transformer\" is no transformers class, which Trainer needs: "
        "use the plain PyTorch loop");
  }
  if (recipe.sft_trainer && recipe.task != Task::kCausalLm) {
    return Error::BadInput(
        Format("SFTTrainer trains causal-lm, not {}: leave out --trainer", Name(recipe.task)));
  }
  if (!plain_model && recipe.driver == Driver::kTorchLoop) {
    return Error::Unsupported(Format(
        "the plain PyTorch loop is modelled for model_type \"torch-transformer\", not \"{}\"",
        config.model_type()));
  }
  if (recipe.driver == Driver::kGenerate)
    return predict::CheckGenerate(architecture, config, recipe);
  return {};
}

predict::CheckpointKind CheckpointKindOf(const Recipe& recipe) {
  // fsdp2_apply_ac wraps the layers in the non-reentrant kind.
  if (recipe.parallel.activation_checkpointing) return predict::CheckpointKind::kNonReentrant;
  if (!recipe.gradient_checkpointing) return predict::CheckpointKind::kNone;
  return recipe.use_reentrant ? predict::CheckpointKind::kReentrant
                              : predict::CheckpointKind::kNonReentrant;
}

// What is modelled of a run over several ranks.
Status CheckParallel(const Recipe& recipe) {
  const Parallel& parallel = recipe.parallel;
  if (parallel.ranks <= 1) return {};
  if (recipe.driver != Driver::kTrainer) {
    return Error::Unsupported("several ranks are modelled for Trainer alone");
  }
  if (recipe.evaluation) {
    return Error::Unsupported("evaluation is not modelled over several ranks: leave it out");
  }
  const bool whole = parallel.sharding == Sharding::kDdp;
  if (whole) return {};
  if (recipe.lora) {
    return Error::Unsupported(
        "LoRA over several ranks is modelled for DDP: leave out the sharding");
  }
  if (ReadsOntoDevice(recipe)) {
    return Error::Unsupported("quantised weights are not modelled over several ranks");
  }
  return {};
}

// What one rank holds and runs.
struct RankModel {
  ModelConfig config;
  ParameterTable table;    // as it is loaded
  ParameterTable adapted;  // with its adapters
};

Result<RankModel> RankModelOf(const ModelConfig& config, const Recipe& recipe,
                              const ParameterTable& whole, const ParameterTable& adapted) {
  if (recipe.parallel.sharding != Sharding::kTensorParallel) {
    return RankModel{config, whole, adapted};
  }
  HEADROOM_ASSIGN_OR_RETURN(ModelConfig rank, predict::RankConfig(config, recipe));
  HEADROOM_ASSIGN_OR_RETURN(const ParameterTable table, ParameterTable::Build(rank, recipe.task));
  const ParameterTable share = predict::RankTable(table, recipe);
  return RankModel{std::move(rank), share, share};
}

// Checkpointing of adapters needs inputs that ask for a gradient, where nothing before the first
// layer is trained. prepare_model_for_kbit_training leaves it out for the non-reentrant kind.
bool AsksInputsForGradients(const Recipe& recipe) {
  if (!recipe.gradient_checkpointing) return false;
  return recipe.kbit ? recipe.kbit->input_require_grads : true;
}

// What happens between an empty device and the end of the last step. The model and everything else
// dies with this frame, after the ledger was taken.
Status Play(predict::Runtime& runtime, const Architecture& architecture, const ModelConfig& config,
            const Recipe& recipe, AttnImplementation attn, const ParameterTable& table,
            const ParameterTable& adapted, Prediction& prediction) {
  // The script's first CUDA call, torch.ones((1, 1)).to("cuda"), or any like it.
  { const predict::Tensor probe = predict::Empty(runtime, {1, 1}, DType::kFloat32); }
  const predict::ShardLayout layout = predict::LayoutOf(recipe);
  const bool reads_onto_device = ReadsOntoDevice(recipe);
  if (recipe.parallel.sharding == Sharding::kTensorParallel) {
    predict::WarmUp(runtime, table, layout.whole_dtype);
  }
  predict::Weights weights = reads_onto_device
                                 ? predict::Weights(runtime, table, recipe)
                                 : predict::Weights(runtime, adapted, layout.whole_dtype,
                                                    layout.sharded ? layout.ranks : 0);
  if (recipe.kbit) weights.PrepareForKbitTraining();
  const bool trains = recipe.driver == Driver::kTrainer;
  if (reads_onto_device && trains) weights.Adapt(adapted, recipe);
  if (recipe.lora) {
    weights.AttachAdapters(*recipe.lora);
    if (AsksInputsForGradients(recipe)) {
      weights.set_input_require_grads(config.MaybeInt("vocab_size").value_or(0));
    }
  }
  // The highest point of loading is not one of training.
  if (reads_onto_device && trains) runtime.ledger().Mark("load", 0);
  // What is sharded stays on the host until it is wrapped.
  if (!layout.sharded) prediction.after_model_allocated = runtime.ledger().allocated();
  prediction.after_model_reserved = runtime.ledger().reserved();
  runtime.KernelsLoaded();
  const predict::ModelArguments arguments{config, recipe, weights, attn, CheckpointKindOf(recipe)};
  HEADROOM_ASSIGN_OR_RETURN(const std::unique_ptr<predict::Model> model,
                            architecture.make(arguments));
  if (recipe.driver == Driver::kTorchLoop) {
    HEADROOM_RETURN_IF_ERROR(predict::RunTorchLoop(runtime, recipe, weights, *model));
  } else if (recipe.driver == Driver::kGenerate) {
    HEADROOM_RETURN_IF_ERROR(predict::RunGenerate(runtime, architecture, config, recipe, *model));
  } else {
    HEADROOM_RETURN_IF_ERROR(
        predict::RunTrainer(runtime, architecture, config, recipe, weights, *model));
  }
  prediction.ledger = runtime.TakeLedger();
  prediction.trace = runtime.TakeTrace();
  return {};
}

}  // namespace

Platform MeasuredPlatform() {
  Platform platform;
  const Result<Gpu> gpu = FindGpu("H200");
  HEADROOM_CHECK(gpu.ok(), "the catalogue lacks the H200");
  platform.gpu = *gpu;
  return platform;
}

std::vector<std::string_view> PredictableModelTypes() {
  std::vector<std::string_view> names = predict::ArchitectureNames();
  std::sort(names.begin(), names.end());
  return names;
}

Result<Prediction> Predict(const ModelConfig& config, const Recipe& recipe,
                           const Platform& platform, OpObserver* observer,
                           const KeepGoing& keep_going) {
  const Architecture* architecture = predict::FindArchitecture(config.model_type());
  if (architecture == nullptr) {
    return Error::Unsupported(Format("model_type \"{}\" is not modelled yet{}", config.model_type(),
                                     DidYouMean(config.model_type(), PredictableModelTypes())));
  }
  HEADROOM_RETURN_IF_ERROR(CheckDriver(config, recipe, *architecture));
  HEADROOM_RETURN_IF_ERROR(CheckSizes(config, recipe));
  HEADROOM_RETURN_IF_ERROR(CheckPlatform(recipe, platform));
  HEADROOM_RETURN_IF_ERROR(CheckQuantizedTraining(recipe));
  HEADROOM_ASSIGN_OR_RETURN(const AttnImplementation attn, ResolveAttention(*architecture, recipe));
  HEADROOM_ASSIGN_OR_RETURN(const ParameterTable table, ParameterTable::Build(config, recipe.task));
  HEADROOM_RETURN_IF_ERROR(CheckPositions(config, recipe, *architecture, table));
  HEADROOM_RETURN_IF_ERROR(CheckParallel(recipe));
  HEADROOM_ASSIGN_OR_RETURN(const int64_t quantized,
                            predict::QuantizedParameters(config, table, recipe.quantization));

  Prediction prediction;
  prediction.parameters = table.parameter_count();
  ParameterTable adapted = table;
  if (recipe.lora) {
    HEADROOM_ASSIGN_OR_RETURN(adapted, ApplyLora(*recipe.lora, config, table));
  }
  prediction.trainable = adapted.trainable_count();
  prediction.buffers = table.buffer_bytes(recipe.weights_dtype.value_or(DType::kFloat32));
  prediction.attn_used = attn;
  HEADROOM_ASSIGN_OR_RETURN(const RankModel rank, RankModelOf(config, recipe, table, adapted));
  predict::Runtime runtime(platform, observer);
  runtime.keep_going = keep_going;
  try {
    HEADROOM_RETURN_IF_ERROR(Play(runtime, *architecture, rank.config, recipe, attn, rank.table,
                                  rank.adapted, prediction));
  } catch (const predict::OutOfMemoryException& failure) {
    prediction.out_of_memory = failure.what;
    prediction.ledger = runtime.TakeLedger();
    prediction.trace = runtime.TakeTrace();
  }
  std::vector<ContextPart> outside = predict::OutsideAllocator(platform, attn, recipe);
  for (ContextPart& part : predict::ParallelContext(recipe)) outside.push_back(std::move(part));
  prediction.ledger.SetContext(std::move(outside));
  prediction.assumptions = predict::Assumptions(recipe, platform, attn);
  for (std::string& line : predict::ParallelAssumptions(recipe, config)) {
    prediction.assumptions.push_back(std::move(line));
  }
  if (quantized > 0) {
    prediction.assumptions.push_back(Format(
        "{:.1f} % of the parameters are in {}; head, embeddings, norms and whatever is no "
        "torch.nn.Linear stay in {}",
        100.0 * static_cast<double>(quantized) / static_cast<double>(prediction.parameters),
        Name(recipe.quantization.kind),
        Name(recipe.kbit ? DType::kFloat32 : recipe.weights_dtype.value_or(DType::kFloat32))));
  }
  return prediction;
}

}  // namespace headroom
