// SPDX-License-Identifier: Apache-2.0
#include "generation_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "base/format.h"

namespace headroom::cli {
namespace {

// The first name of a flag: "--seq" of "--seq,--max-length".
std::string_view FirstName(std::string_view names) { return names.substr(0, names.find(',')); }

// Whether the flag loads quantised weights, which --lora trains on too.
bool Quantizes(std::string_view name) {
  return name.starts_with("--load-in-") || name.starts_with("--bnb-");
}

// Without --generate every other flag of the group would be silently ignored.
Status CheckAlone(const Arguments& arguments, bool trains_adapters) {
  for (const Flag& flag : kGenerationFlags) {
    const std::string_view name = FirstName(flag.names);
    if (!arguments.Has(name) || (trains_adapters && Quantizes(name))) continue;
    if (Quantizes(name)) {
      return Error::BadInput(
          Format("{}: quantised weights cannot be trained: add --lora or --generate", name));
    }
    return Error::BadInput(
        Format("{} belongs to generation: add --generate", FirstName(flag.names)));
  }
  return {};
}

// What only training has.
void WarnAboutTraining(const Arguments& arguments, PlanOptions& options) {
  for (const char* flag : {"--optim", "--accum", "--steps", "--gradient-checkpointing",
                           "--max-grad-norm", "--args", "--attention-mask"}) {
    if (!arguments.Has(flag)) continue;
    options.warnings.push_back(Format("{} has no effect: --generate trains nothing", flag));
  }
}

Status CheckPrecision(const Arguments& arguments) {
  constexpr std::pair<const char*, const char*> kAutocast[] = {{"--bf16", "bfloat16"},
                                                               {"--fp16", "float16"}};
  for (const auto& [flag, dtype] : kAutocast) {
    if (!arguments.Has(flag)) continue;
    return Error::BadInput(Format(
        "{} is autocast of a training step: write --dtype {} for weights in 16 bit", flag, dtype));
  }
  return {};
}

Result<std::optional<std::string>> OneOf(const Arguments& arguments, std::string_view flag,
                                         std::initializer_list<std::string_view> names) {
  const std::optional<std::string> text = arguments.Value(flag);
  if (text && std::find(names.begin(), names.end(), *text) == names.end()) {
    return Error::BadInput(Format("{} {}: choose {}", flag, *text, fmt::join(names, " or ")));
  }
  return text;
}

Status ReadCache(const Arguments& arguments, Generation& generation) {
  HEADROOM_ASSIGN_OR_RETURN(
      const std::optional<std::string> name,
      OneOf(arguments, "--cache-implementation", {"dynamic", "static", "none"}));
  if (!name) return {};
  const std::optional<CacheImplementation> cache = ParseCacheImplementation(*name);
  generation.use_cache = cache.has_value();  // else "none"
  if (cache) generation.cache = *cache;
  return {};
}

Status ReadQuantization(const Arguments& arguments, Quantization& quantization) {
  const bool four = arguments.Has("--load-in-4bit");
  if (four && arguments.Has("--load-in-8bit")) {
    return Error::BadInput("--load-in-4bit and --load-in-8bit contradict each other: keep one");
  }
  for (const char* flag :
       {"--bnb-4bit-quant-type", "--bnb-4bit-use-double-quant", "--bnb-4bit-compute-dtype"}) {
    if (arguments.Has(flag) && !four) {
      return Error::BadInput(Format("{} says how to load 4 bit: add --load-in-4bit", flag));
    }
  }
  if (arguments.Has("--load-in-8bit")) quantization.kind = Quantization::Kind::kInt8;
  if (!four) return {};
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<std::string> type,
                            OneOf(arguments, "--bnb-4bit-quant-type", {"fp4", "nf4"}));
  quantization.kind = type == "nf4" ? Quantization::Kind::kNf4 : Quantization::Kind::kFp4;
  quantization.double_quant = arguments.Has("--bnb-4bit-use-double-quant");
  const std::optional<std::string> compute = arguments.Value("--bnb-4bit-compute-dtype");
  if (!compute) return {};
  const std::optional<DType> dtype = ParseDType(*compute);
  if (!dtype || !(IsHalf(*dtype) || *dtype == DType::kFloat32)) {
    return Error::BadInput(
        Format("--bnb-4bit-compute-dtype {}: choose float32, bfloat16 or float16", *compute));
  }
  quantization.compute_dtype = *dtype;
  return {};
}

// QLoRA as PEFT's guide writes it: prepare_model_for_kbit_training with its defaults, which turn
// (reentrant) checkpointing on unless the command line says otherwise.
Status ReadQuantizedTraining(const Arguments& arguments, Recipe& recipe) {
  HEADROOM_RETURN_IF_ERROR(ReadQuantization(arguments, recipe.quantization));
  if (recipe.quantization.kind == Quantization::Kind::kNone) return {};
  recipe.kbit = KbitPreparation{};
  if (!arguments.Has("--gradient-checkpointing")) {
    recipe.gradient_checkpointing = true;
    recipe.use_reentrant = true;
  }
  recipe.kbit->input_require_grads = recipe.use_reentrant;
  return {};
}

}  // namespace

Status ReadGeneration(const Arguments& arguments, PlanOptions& options) {
  if (!arguments.Has("--generate")) {
    const bool trains_adapters = options.recipe.lora.has_value();
    HEADROOM_RETURN_IF_ERROR(CheckAlone(arguments, trains_adapters));
    return trains_adapters ? ReadQuantizedTraining(arguments, options.recipe) : Status();
  }
  Recipe& recipe = options.recipe;
  recipe.driver = Driver::kGenerate;
  HEADROOM_RETURN_IF_ERROR(CheckPrecision(arguments));
  if (!options.batch_given) recipe.per_device_train_batch_size = 1;
  Generation& generation = recipe.generation;
  if (const auto text = arguments.Value("--max-new-tokens")) {
    HEADROOM_ASSIGN_OR_RETURN(generation.max_new_tokens,
                              ReadCount("--max-new-tokens", *text, {1, 1 << 20}));
  }
  if (const auto text = arguments.Value("--num-beams")) {
    HEADROOM_ASSIGN_OR_RETURN(generation.num_beams, ReadCount("--num-beams", *text, {1, 1024}));
  }
  generation.do_sample = arguments.Has("--do-sample");
  if (generation.do_sample && generation.num_beams > 1) {
    return Error::Unsupported("--do-sample with --num-beams is not modelled: keep one");
  }
  HEADROOM_RETURN_IF_ERROR(ReadCache(arguments, generation));
  HEADROOM_RETURN_IF_ERROR(ReadQuantization(arguments, recipe.quantization));
  HEADROOM_ASSIGN_OR_RETURN(const std::optional<std::string> how,
                            OneOf(arguments, "--load-with", {"to", "device-map"}));
  if (how == "device-map") recipe.loading = Loading::kDeviceMap;
  WarnAboutTraining(arguments, options);
  return {};
}

}  // namespace headroom::cli
