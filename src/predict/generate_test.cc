// SPDX-License-Identifier: Apache-2.0
//
// Runs of model.generate on small models: what holds for every family, and what options change.
#include "predict/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "model/kv_layout.h"
#include "predict/load.h"
#include "predict/predict.h"

namespace headroom {
namespace {

struct Case {
  const char* name;
  const char* config;
};

constexpr Case kFamilies[] = {
    {"bloom", R"({"model_type": "bloom", "hidden_size": 256, "n_layer": 2, "n_head": 4,
                  "vocab_size": 1000})"},
    {"codegen", R"({"model_type": "codegen", "n_embd": 256, "n_layer": 2, "n_head": 4,
                    "rotary_dim": 32, "vocab_size": 1000})"},
    {"falcon_grouped", R"({"model_type": "falcon", "hidden_size": 256, "num_hidden_layers": 2,
                           "num_attention_heads": 4, "num_kv_heads": 2, "vocab_size": 1000,
                           "new_decoder_architecture": true, "parallel_attn": true})"},
    {"falcon_one_head", R"({"model_type": "falcon", "hidden_size": 256, "num_hidden_layers": 2,
                            "num_attention_heads": 4, "vocab_size": 1000})"},
    {"gemma2", R"({"model_type": "gemma2", "hidden_size": 256, "num_hidden_layers": 2,
                   "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
                   "intermediate_size": 512, "vocab_size": 1000})"},
    {"gpt2", R"({"model_type": "gpt2", "n_embd": 256, "n_layer": 2, "n_head": 4,
                 "vocab_size": 1000})"},
    {"gpt_bigcode", R"({"model_type": "gpt_bigcode", "n_embd": 256, "n_layer": 2, "n_head": 4,
                        "vocab_size": 1000})"},
    {"gpt_neo", R"({"model_type": "gpt_neo", "hidden_size": 256, "num_layers": 2, "num_heads": 4,
                    "attention_types": [[["global", "local"], 1]], "vocab_size": 1000})"},
    {"gpt_neox", R"({"model_type": "gpt_neox", "hidden_size": 256, "num_hidden_layers": 2,
                     "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 1000})"},
    {"gptj", R"({"model_type": "gptj", "n_embd": 256, "n_layer": 2, "n_head": 4,
                 "rotary_dim": 32, "vocab_size": 1000})"},
    {"llama", R"({"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2,
                  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512,
                  "vocab_size": 1000})"},
    {"mixtral", R"({"model_type": "mixtral", "hidden_size": 256, "num_hidden_layers": 2,
                    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512,
                    "num_local_experts": 4, "vocab_size": 1000})"},
    {"mpt", R"({"model_type": "mpt", "d_model": 256, "n_layers": 2, "n_heads": 4,
                "vocab_size": 1000})"},
    {"opt", R"({"model_type": "opt", "hidden_size": 256, "num_hidden_layers": 2,
                "num_attention_heads": 4, "ffn_dim": 512, "word_embed_proj_dim": 256,
                "vocab_size": 1000})"},
    {"phi", R"({"model_type": "phi", "hidden_size": 256, "num_hidden_layers": 2,
                "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 1000})"},
};

ModelConfig ConfigOf(const char* json) {
  const Result<ModelConfig> config = ModelConfig::FromJson(json, "test");
  EXPECT_TRUE(config.ok()) << config.error().message;
  return *config;
}

Recipe GenerateRecipe() {
  Recipe recipe;
  recipe.driver = Driver::kGenerate;
  recipe.task = Task::kCausalLm;
  recipe.per_device_train_batch_size = 2;
  recipe.sequence_length = 48;
  recipe.weights_dtype = DType::kBFloat16;
  recipe.generation.max_new_tokens = 17;
  return recipe;
}

Platform IdealPlatform() {
  Platform platform = MeasuredPlatform();
  platform.allocator.backend = AllocatorOptions::Backend::kIdeal;
  return platform;
}

Prediction MustPredict(const char* config, const Recipe& recipe) {
  Result<Prediction> prediction = Predict(ConfigOf(config), recipe, IdealPlatform());
  EXPECT_TRUE(prediction.ok()) << prediction.error().message;
  return *std::move(prediction);
}

const PhaseMark& MarkOf(const Prediction& prediction, std::string_view name) {
  const auto marks = prediction.ledger.marks();
  const auto found = std::find_if(marks.begin(), marks.end(),
                                  [&](const PhaseMark& mark) { return mark.name == name; });
  EXPECT_NE(found, marks.end()) << name;
  return *found;
}

int64_t CacheAtTheEnd(const Prediction& prediction) {
  const PhaseMark& end = MarkOf(prediction, "decode");
  return prediction.ledger.ComponentsAt(end.event)[static_cast<size_t>(Component::kKvCache)]
      .count();
}

class GenerateFamilies : public testing::TestWithParam<Case> {};

TEST_P(GenerateFamilies, CacheHoldsEveryTokenButTheLast) {
  const Recipe recipe = GenerateRecipe();
  const Prediction prediction = MustPredict(GetParam().config, recipe);
  const int64_t per_token = KvLayoutOf(ConfigOf(GetParam().config)).BytesPerToken(DType::kBFloat16);
  const int64_t tokens = 2 * (48 + 17 - 1);
  // Sliding layers also hold the window itself on the device.
  EXPECT_NEAR(static_cast<double>(CacheAtTheEnd(prediction)),
              static_cast<double>(tokens * per_token), 64);
}

TEST_P(GenerateFamilies, BeamsMultiplyTheCache) {
  Recipe recipe = GenerateRecipe();
  const int64_t greedy = CacheAtTheEnd(MustPredict(GetParam().config, recipe));
  recipe.generation.num_beams = 3;
  const int64_t beams = CacheAtTheEnd(MustPredict(GetParam().config, recipe));
  EXPECT_NEAR(static_cast<double>(beams), 3.0 * static_cast<double>(greedy), 256);
}

TEST_P(GenerateFamilies, NothingOfTrainingIsAllocated) {
  const Prediction prediction = MustPredict(GetParam().config, GenerateRecipe());
  for (const ComponentBytes& components : prediction.ledger.ComponentsAtMarks()) {
    EXPECT_EQ(components[static_cast<size_t>(Component::kGradients)], Bytes(0));
    EXPECT_EQ(components[static_cast<size_t>(Component::kOptimizer)], Bytes(0));
  }
}

TEST_P(GenerateFamilies, ActivationsAreGoneOnceATokenIsChosen) {
  const Prediction prediction = MustPredict(GetParam().config, GenerateRecipe());
  const auto held = prediction.ledger.ComponentsAt(
      MarkOf(prediction, "decode").event)[static_cast<size_t>(Component::kActivations)];
  // The logits and their scores.
  EXPECT_LE(held.count(), 2 * 1000 * (2 + 4 + 4));
}

INSTANTIATE_TEST_SUITE_P(Decoders, GenerateFamilies, testing::ValuesIn(kFamilies),
                         [](const auto& of) { return std::string(of.param.name); });

constexpr const char* kLlama = kFamilies[10].config;

TEST(Generate, LongGenerationsReachTheSameCacheAsIfEveryStepWerePlayed) {
  Recipe recipe = GenerateRecipe();
  recipe.generation.max_new_tokens = 1000;
  const Prediction prediction = MustPredict(kLlama, recipe);
  const int64_t per_token = KvLayoutOf(ConfigOf(kLlama)).BytesPerToken(DType::kBFloat16);
  EXPECT_EQ(CacheAtTheEnd(prediction), 2 * (48 + 1000 - 1) * per_token);
}

TEST(Generate, WithoutACacheEveryStepReadsTheWholeSequence) {
  Recipe recipe = GenerateRecipe();
  recipe.generation.use_cache = false;
  const Prediction prediction = MustPredict(kLlama, recipe);
  EXPECT_EQ(CacheAtTheEnd(prediction), 0);
  EXPECT_GT(MarkOf(prediction, "decode").peak_allocated,
            MarkOf(prediction, "prefill").peak_allocated);
}

// Encoder-decoders cache the encoder's keys and values once and their own for every token.
TEST(Generate, EncoderDecodersCacheThePromptAndWhatTheyWrite) {
  for (const char* const json :
       {R"({"model_type": "t5", "d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 2,
            "num_heads": 4, "vocab_size": 1000})",
        R"({"model_type": "bart", "d_model": 256, "encoder_layers": 2, "decoder_layers": 2,
            "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 512,
            "decoder_ffn_dim": 512, "vocab_size": 1000})"}) {
    Recipe recipe = GenerateRecipe();
    recipe.task = Task::kSeq2SeqLm;
    const int64_t per_token = KvLayoutOf(ConfigOf(json)).BytesPerToken(DType::kBFloat16);
    EXPECT_EQ(CacheAtTheEnd(MustPredict(json, recipe)), 2 * (48 + 17) * per_token);
    recipe.generation.cache = CacheImplementation::kStatic;
    EXPECT_GE(CacheAtTheEnd(MustPredict(json, recipe)), 2 * (48 + 17) * per_token);
  }
}

TEST(Generate, RefusesWhatDoesNotGenerate) {
  Recipe recipe = GenerateRecipe();
  recipe.task = Task::kSequenceClassification;
  const Result<Prediction> prediction = Predict(ConfigOf(kLlama), recipe, IdealPlatform());
  ASSERT_FALSE(prediction.ok());
  EXPECT_NE(prediction.error().message.find("does not generate"), std::string::npos);
}

TEST(Generate, RefusesToRunBeyondLearnedPositions) {
  Recipe recipe = GenerateRecipe();
  recipe.sequence_length = 1000;
  recipe.generation.max_new_tokens = 25;
  const char* const gpt2 = kFamilies[5].config;
  EXPECT_TRUE(Predict(ConfigOf(gpt2), recipe, IdealPlatform()).ok());
  recipe.generation.max_new_tokens = 26;
  EXPECT_FALSE(Predict(ConfigOf(gpt2), recipe, IdealPlatform()).ok());
}

TEST(Generate, ExpertsOfADecodedTokenAreCopied) {
  const char* const mixtral = kFamilies[11].config;
  Recipe recipe = GenerateRecipe();
  recipe.per_device_train_batch_size = 8;
  const Prediction prediction = MustPredict(mixtral, recipe);
  // Eight tokens with two experts each, of three matrices of 256 x 512.
  const int64_t copies = 8 * 2 * 3 * 256 * 512 * 2;
  EXPECT_GT(MarkOf(prediction, "decode").peak_allocated.count(),
            MarkOf(prediction, "load").allocated.count() + copies);
}

// ---- Quantised weights ----

Recipe Quantized(Quantization::Kind kind) {
  Recipe recipe = GenerateRecipe();
  recipe.quantization.kind = kind;
  return recipe;
}

// Of the llama above: seven matrices a layer, and what is left in 16 bit.
constexpr int64_t kLinear = 2 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 512 * 256);
constexpr int64_t kRest = 2 * 1000 * 256 + 5 * 256;

TEST(Quantization, Int8KeepsAByteAWeightAndAFloatARow) {
  const Prediction prediction = MustPredict(kLlama, Quantized(Quantization::Kind::kInt8));
  const int64_t rows = 2 * (2 * 256 + 2 * 128 + 2 * 512 + 256);
  constexpr int64_t kInverseFrequencies = 2 * 32 * 4;
  EXPECT_EQ(prediction.after_model_allocated.count(),
            kLinear + rows * 4 + kRest * 2 + kInverseFrequencies);
}

TEST(Quantization, FourBitKeepsAScaleForEachBlockOf64) {
  const Prediction prediction = MustPredict(kLlama, Quantized(Quantization::Kind::kNf4));
  constexpr int64_t kCodes = 14 * 16 * 4;
  constexpr int64_t kInverseFrequencies = 2 * 32 * 4;
  EXPECT_EQ(prediction.after_model_allocated.count(),
            kLinear / 2 + kLinear / 64 * 4 + kCodes + kRest * 2 + kInverseFrequencies);
}

TEST(Quantization, DoubleQuantisationKeepsAByteForAScale) {
  Recipe recipe = Quantized(Quantization::Kind::kNf4);
  const int64_t plain = MustPredict(kLlama, recipe).after_model_allocated.count();
  recipe.quantization.double_quant = true;
  const int64_t twice = MustPredict(kLlama, recipe).after_model_allocated.count();
  constexpr int64_t kScales = kLinear / 64;
  constexpr int64_t kNested = 14 * (256 * 4 + 4);  // each matrix: the map of 256, and the offset
  constexpr int64_t kProcessMap = 256 * 4;         // made once, with the first
  EXPECT_EQ(twice, plain - 3 * kScales + kScales / 256 * 4 + kNested + kProcessMap);
}

TEST(Quantization, LoadingHoldsAWeightIn16BitWhileItIsQuantised) {
  const Prediction prediction = MustPredict(kLlama, Quantized(Quantization::Kind::kNf4));
  const PhaseMark& load = MarkOf(prediction, "load");
  EXPECT_GE(load.peak_allocated, load.allocated);
  EXPECT_EQ(load.allocated, prediction.after_model_allocated);
}

TEST(Quantization, PrefillDequantisesInTheComputeType) {
  Recipe recipe = Quantized(Quantization::Kind::kNf4);
  const Bytes in_fp32 = MarkOf(MustPredict(kLlama, recipe), "prefill").peak_allocated;
  recipe.quantization.compute_dtype = DType::kBFloat16;
  const Bytes in_bf16 = MarkOf(MustPredict(kLlama, recipe), "prefill").peak_allocated;
  EXPECT_LT(in_bf16, in_fp32);
}

TEST(Quantization, RefusesAModelWithoutLinearLayers) {
  const Result<Prediction> prediction =
      Predict(ConfigOf(kFamilies[2].config), Quantized(Quantization::Kind::kNf4), IdealPlatform());
  ASSERT_FALSE(prediction.ok());
  EXPECT_NE(prediction.error().message.find("falcon has none"), std::string::npos);
}

TEST(Quantization, DeviceMapTakesOneBlockForAllWeightsFirst) {
  Recipe recipe = GenerateRecipe();
  recipe.loading = Loading::kDeviceMap;
  const Prediction prediction = MustPredict(kLlama, recipe);
  const auto table = ParameterTable::Build(ConfigOf(kLlama), Task::kCausalLm);
  ASSERT_TRUE(table.ok());
  int64_t largest = 0;
  for (size_t at = 0; at < MarkOf(prediction, "load").event; ++at) {
    const MemoryEvent event = prediction.ledger.events()[at];
    if (event.type == MemoryEvent::Type::kAlloc) largest = std::max(largest, event.bytes);
  }
  // Less what is reserved and unused by then: the probe's four bytes.
  constexpr int64_t kProbe = 4;
  EXPECT_EQ(largest, predict::WarmUpBytes(*table, recipe, GiB(100)).count() - kProbe);
}

}  // namespace
}  // namespace headroom
