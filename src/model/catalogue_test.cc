// SPDX-License-Identifier: Apache-2.0
#include "model/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "model/catalogue_tables.h"
#include "model/config.h"

namespace headroom {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

Json Config(std::string_view name) {
  const KnownModel* model = FindKnownModel(name);
  if (model == nullptr) {
    ADD_FAILURE() << name << " is not known";
    return Json::object();
  }
  return Json::parse(model->config_json);
}

int64_t At(const Json& config, const char* key) { return config.at(key).get<int64_t>(); }

// ---- Parameter counts by short formulas of this test, against those published with the weights.

int64_t Linear(int64_t in, int64_t out) { return in * out + out; }

// BertModel with its pooler.
int64_t CountBert(const Json& c) {
  const int64_t h = At(c, "hidden_size");
  const int64_t i = At(c, "intermediate_size");
  const int64_t rows =
      At(c, "vocab_size") + At(c, "max_position_embeddings") + At(c, "type_vocab_size");
  const int64_t layer = 4 * Linear(h, h) + Linear(h, i) + Linear(i, h) + 4 * h;
  return rows * h + 2 * h + At(c, "num_hidden_layers") * layer + Linear(h, h);
}

int64_t CountGpt2(const Json& c) {
  const int64_t h = At(c, "n_embd");
  const int64_t layer =
      Linear(h, 3 * h) + Linear(h, h) + Linear(h, 4 * h) + Linear(4 * h, h) + 4 * h;
  return (At(c, "vocab_size") + At(c, "n_positions")) * h + At(c, "n_layer") * layer + 2 * h;
}

// Llama's layout, with what Mistral, Qwen, Gemma and Mixtral change in it.
int64_t CountLlamaLike(const Json& c) {
  const std::string type = c.at("model_type");
  const int64_t h = At(c, "hidden_size");
  const int64_t head = c.value("head_dim", h / At(c, "num_attention_heads"));
  const int64_t q = head * At(c, "num_attention_heads");
  const int64_t kv = head * c.value("num_key_value_heads", At(c, "num_attention_heads"));
  const int64_t mlp = 3 * h * At(c, "intermediate_size");
  int64_t layer = 2 * h * q + 2 * h * kv + 2 * h;
  layer += type == "mixtral" ? At(c, "num_local_experts") * (mlp + h) : mlp;
  if (type == "qwen2") layer += q + 2 * kv;
  if (type == "qwen3") layer += 2 * head;
  if (type == "gemma2") layer += 2 * h;
  const bool tied = c.value("tie_word_embeddings", type.starts_with("gemma"));
  const int64_t embeddings = At(c, "vocab_size") * h * (tied ? 1 : 2);
  return embeddings + At(c, "num_hidden_layers") * layer + h;
}

int64_t CountBloom(const Json& c) {
  const int64_t h = At(c, "hidden_size");
  const int64_t layer =
      Linear(h, 3 * h) + Linear(h, h) + Linear(h, 4 * h) + Linear(4 * h, h) + 4 * h;
  return At(c, "vocab_size") * h + 2 * h + At(c, "n_layer") * layer + 2 * h;
}

int64_t CountOpt(const Json& c) {
  const int64_t h = At(c, "hidden_size");
  const int64_t f = At(c, "ffn_dim");
  const int64_t layer = 4 * Linear(h, h) + Linear(h, f) + Linear(f, h) + 4 * h;
  const int64_t rows = At(c, "vocab_size") + At(c, "max_position_embeddings") + 2;
  return rows * h + At(c, "num_hidden_layers") * layer + 2 * h;
}

int64_t CountGptNeox(const Json& c) {
  const int64_t h = At(c, "hidden_size");
  const int64_t i = At(c, "intermediate_size");
  const int64_t layer = Linear(h, 3 * h) + Linear(h, h) + Linear(h, i) + Linear(i, h) + 4 * h;
  return 2 * At(c, "vocab_size") * h + At(c, "num_hidden_layers") * layer + 2 * h;
}

int64_t CountT5(const Json& c) {
  const int64_t d = At(c, "d_model");
  const int64_t attention = 4 * d * At(c, "d_kv") * At(c, "num_heads");
  const bool gated = c.at("feed_forward_proj").get<std::string>().starts_with("gated");
  const int64_t mlp = (gated ? 3 : 2) * d * At(c, "d_ff");
  const int64_t layers = At(c, "num_layers") * (attention + mlp + 2 * d) +
                         At(c, "num_decoder_layers") * (2 * attention + mlp + 3 * d);
  const int64_t buckets = 2 * At(c, "relative_attention_num_buckets") * At(c, "num_heads");
  const int64_t embeddings =
      At(c, "vocab_size") * d * (c.value("tie_word_embeddings", true) ? 1 : 2);
  return embeddings + layers + 2 * d + buckets;
}

int64_t CountWhisper(const Json& c) {
  const int64_t d = At(c, "d_model");
  const int64_t f = At(c, "encoder_ffn_dim");
  const int64_t attention = 4 * Linear(d, d) - d;  // the key projection has no bias
  const int64_t mlp = Linear(d, f) + Linear(f, d);
  const int64_t convolutions = 3 * At(c, "num_mel_bins") * d + d + 3 * d * d + d;
  const int64_t rows =
      At(c, "vocab_size") + At(c, "max_source_positions") + At(c, "max_target_positions");
  return convolutions + rows * d + At(c, "encoder_layers") * (attention + mlp + 4 * d) +
         At(c, "decoder_layers") * (2 * attention + mlp + 6 * d) + 4 * d;
}

TEST(KnownModels, HaveThePublishedParameterCounts) {
  struct Case {
    const char* name;
    int64_t (*count)(const Json&);
    int64_t published;
  };
  const Case cases[] = {
      {"bert-base-uncased", CountBert, 109'482'240},
      {"bert-base-cased", CountBert, 108'310'272},
      {"bert-large-uncased", CountBert, 335'141'888},
      {"bert-base-multilingual-cased", CountBert, 177'853'440},
      {"all-MiniLM-L6-v2", CountBert, 22'713'216},
      {"gpt2", CountGpt2, 124'439'808},
      {"gpt2-medium", CountGpt2, 354'823'168},
      {"gpt2-xl", CountGpt2, 1'557'611'200},
      {"Llama-2-7b-hf", CountLlamaLike, 6'738'415'616},
      {"Llama-2-70b-hf", CountLlamaLike, 68'976'648'192},
      {"Llama-3.1-8B", CountLlamaLike, 8'030'261'248},
      {"Llama-3.1-405B", CountLlamaLike, 405'853'388'800},
      {"Llama-3.2-1B", CountLlamaLike, 1'235'814'400},
      {"Llama-3.2-3B", CountLlamaLike, 3'212'749'824},
      {"TinyLlama-1.1B-Chat-v1.0", CountLlamaLike, 1'100'048'384},
      {"SmolLM2-135M", CountLlamaLike, 134'515'008},
      {"Mistral-7B-v0.1", CountLlamaLike, 7'241'732'096},
      {"Mistral-7B-v0.3", CountLlamaLike, 7'248'023'552},
      {"Mistral-Nemo-Base-2407", CountLlamaLike, 12'247'782'400},
      {"Mixtral-8x7B-v0.1", CountLlamaLike, 46'702'792'704},
      {"Qwen2.5-0.5B", CountLlamaLike, 494'032'768},
      {"Qwen2.5-7B", CountLlamaLike, 7'615'616'512},
      {"Qwen2.5-72B", CountLlamaLike, 72'706'203'648},
      {"Qwen3-0.6B", CountLlamaLike, 596'049'920},
      {"Qwen3-8B", CountLlamaLike, 8'190'735'360},
      {"gemma-2b", CountLlamaLike, 2'506'172'416},
      {"gemma-7b", CountLlamaLike, 8'537'680'896},
      {"gemma-2-27b", CountLlamaLike, 27'227'128'320},
      {"bloom-560m", CountBloom, 559'214'592},
      {"bloom", CountBloom, 176'247'271'424},
      {"opt-125m", CountOpt, 125'239'296},
      {"opt-30b", CountOpt, 29'974'540'288},
      {"pythia-160m", CountGptNeox, 162'322'944},
      {"pythia-12b", CountGptNeox, 11'846'072'320},
      {"gpt-neox-20b", CountGptNeox, 20'554'567'680},
      {"t5-small", CountT5, 60'506'624},
      {"t5-11b", CountT5, 11'307'321'344},
      {"flan-t5-base", CountT5, 247'577'856},
      {"mt5-small", CountT5, 300'176'768},
      {"whisper-tiny", CountWhisper, 37'760'640},
      {"whisper-large-v3", CountWhisper, 1'543'490'560},
  };
  for (const Case& c : cases) EXPECT_EQ(c.count(Config(c.name)), c.published) << c.name;
}

TEST(KnownModels, AreManyAndEachIsAConfig) {
  EXPECT_GE(KnownModels().size(), 90u);
  std::set<std::string_view> names;
  for (const KnownModel& model : KnownModels()) {
    SCOPED_TRACE(model.name);
    EXPECT_TRUE(names.insert(model.name).second);
    const Json config = Json::parse(model.config_json, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(config.is_object());
    EXPECT_TRUE(config.at("model_type").is_string());
    EXPECT_FALSE(config.contains("torch_dtype")) << "transformers 5 calls it dtype";
    if (config.contains("dtype")) {
      EXPECT_THAT(config.at("dtype").get<std::string>(),
                  ::testing::AnyOf("float32", "float16", "bfloat16"));
    }
  }
}

TEST(KnownModels, AreReadWithoutARemark) {
  for (const KnownModel& model : KnownModels()) {
    SCOPED_TRACE(model.name);
    const Result<ModelConfig> config = ModelConfig::FromJson(model.config_json, model.name);
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_THAT(config->warnings(), ::testing::IsEmpty());
  }
}

TEST(KnownModels, HaveHeadsThatDivideTheirWidth) {
  for (const KnownModel& model : KnownModels()) {
    SCOPED_TRACE(model.name);
    const Json c = Json::parse(model.config_json);
    if (!c.contains("hidden_size") || !c.contains("num_attention_heads")) continue;
    if (!c.contains("head_dim")) {
      EXPECT_EQ(At(c, "hidden_size") % At(c, "num_attention_heads"), 0);
    }
    if (c.contains("num_key_value_heads")) {
      EXPECT_EQ(At(c, "num_attention_heads") % At(c, "num_key_value_heads"), 0);
    }
  }
}

TEST(FindKnownModel, TakesFullShortAndOtherNamesInAnyCase) {
  const std::map<std::string, std::string> expected = {
      {"google-bert/bert-large-uncased", "google-bert/bert-large-uncased"},
      {"bert-large-uncased", "google-bert/bert-large-uncased"},
      {"BERT-Large-Uncased", "google-bert/bert-large-uncased"},
      {"gpt2", "openai-community/gpt2"},
      {"openai-community/gpt2", "openai-community/gpt2"},
      {"roberta-base", "FacebookAI/roberta-base"},
      {"camembert-base", "almanach/camembert-base"},
      {"llama-3.1-8b", "meta-llama/Llama-3.1-8B"},
      {"meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-8B"},
      {"meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"},
      {"llama-2-7b", "meta-llama/Llama-2-7b-hf"},
      {"octocoder", "bigcode/octocoder"},
      {"tinyllama", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"},
      {"gpt-j-6B", "EleutherAI/gpt-j-6b"},
      {"bloom-176b", "bigscience/bloom"},
  };
  for (const auto& [name, known] : expected) {
    const KnownModel* model = FindKnownModel(name);
    ASSERT_NE(model, nullptr) << name;
    EXPECT_EQ(model->name, known) << name;
  }
}

TEST(FindKnownModel, RefusesOtherOrganisationsAndFragments) {
  for (const char* name :
       {"someone/bert-large-uncased", "bert", "", "/", "google-bert/", "llama"}) {
    EXPECT_EQ(FindKnownModel(name), nullptr) << name;
  }
}

TEST(FindKnownModel, FindsEveryNameAndEveryAlias) {
  std::map<std::string, std::string_view> short_names;
  for (const KnownModel& model : KnownModels()) {
    EXPECT_EQ(FindKnownModel(model.name)->name, model.name);
    const std::string tail(model.name.substr(model.name.find('/') + 1));
    EXPECT_TRUE(short_names.emplace(tail, model.name).second) << tail << " names two models";
    EXPECT_EQ(FindKnownModel(tail)->name, model.name);
  }
  for (const ModelAlias& alias : ModelAliases()) {
    const KnownModel* model = FindKnownModel(alias.alias);
    ASSERT_NE(model, nullptr) << alias.alias;
    EXPECT_EQ(model->name, alias.name) << alias.alias << " is hidden by a model's own name";
  }
}

TEST(UnknownModel, NamesTheNearestAndTheDownload) {
  const Error error = UnknownModel("bert-lage-uncased");
  EXPECT_EQ(error.code, ErrorCode::kBadInput);
  EXPECT_EQ(
      error.message,
      "unknown model \"bert-lage-uncased\": did you mean \"bert-large-uncased\"? Any model of "
      "the Hub is known after: hf download ORG/NAME config.json");
  EXPECT_THAT(UnknownModel("nobody/bert-large-uncased").message,
              HasSubstr("hf download nobody/bert-large-uncased config.json"));
  EXPECT_THAT(UnknownModel("nobody/bert-large-uncased").message, HasSubstr("did you mean \""));
  EXPECT_THAT(UnknownModel("zzzzzzzzzzzz").message, Not(HasSubstr("did you mean")));
}

TEST(UnknownModel, StaysOneHarmlessLine) {
  const std::string message = UnknownModel("a/b\n; rm -rf $HOME").message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_THAT(message, HasSubstr("hf download ORG/NAME config.json"));
  EXPECT_THAT(UnknownModel("-x/y").message, HasSubstr("hf download ORG/NAME config.json"));
  EXPECT_LT(UnknownModel(std::string(1 << 20, 'x')).message.size(), 300u);
}

// ---- GPUs

std::string Found(std::string_view name) {
  const Result<Gpu> gpu = FindGpu(name);
  return gpu.ok() ? std::string(gpu->name) : gpu.error().message;
}

TEST(KnownGpus, ArePlausible) {
  EXPECT_GE(KnownGpus().size(), 50u);
  std::set<std::string_view> names;
  int measured = 0;
  for (const Gpu& gpu : KnownGpus()) {
    SCOPED_TRACE(gpu.name);
    EXPECT_TRUE(names.insert(gpu.name).second);
    EXPECT_FALSE(gpu.name.starts_with("NVIDIA"));
    EXPECT_GT(gpu.usable, GiB(5));
    EXPECT_LT(gpu.usable, GiB(288));
    EXPECT_GE(gpu.compute_major, 6);
    EXPECT_LE(gpu.compute_major, 12);
    EXPECT_GE(gpu.memory_bandwidth, 200e9);
    EXPECT_GE(gpu.bf16_flops, gpu.fp32_flops);
    EXPECT_GT(gpu.fp32_flops, 4e12);
    measured += gpu.measured ? 1 : 0;
  }
  EXPECT_GE(measured, 45);
}

// fp32 rate = multiprocessors x cores of each x 2 FLOP x clock: three columns that must agree.
TEST(KnownGpus, RunAtAPlausibleClock) {
  for (const Gpu& gpu : KnownGpus()) {
    const bool wide = gpu.compute_major >= 8 ? gpu.compute_major * 10 + gpu.compute_minor != 80
                                             : gpu.compute_major * 10 + gpu.compute_minor == 61;
    const double clock = gpu.fp32_flops / (2.0 * (wide ? 128 : 64) * gpu.multiprocessors);
    EXPECT_GT(clock, 1.1e9) << gpu.name;
    EXPECT_LT(clock, 2.7e9) << gpu.name;
  }
}

TEST(KnownGpus, KnowTheMeasuredH200) {
  const Result<Gpu> gpu = FindGpu("NVIDIA H200");
  ASSERT_TRUE(gpu.ok());
  EXPECT_EQ(gpu->name, "H200");
  EXPECT_EQ(gpu->usable, MiB(143'155));
  EXPECT_TRUE(gpu->measured);
  EXPECT_TRUE(gpu->HasBf16());
  EXPECT_EQ(gpu->compute_major, 9);
  EXPECT_EQ(gpu->multiprocessors, 132);
}

TEST(KnownGpus, HaveBf16FromAmpereOn) {
  EXPECT_TRUE(FindGpu("rtx 3060")->HasBf16());
  EXPECT_FALSE(FindGpu("rtx 2080 ti")->HasBf16());
  EXPECT_FALSE(FindGpu("v100")->HasBf16());
}

TEST(FindGpu, FindsEveryCardByItsName) {
  for (const Gpu& gpu : KnownGpus()) {
    EXPECT_EQ(Found(gpu.name), gpu.name);
    EXPECT_EQ(Found("NVIDIA " + std::string(gpu.name)), gpu.name);
  }
}

TEST(FindGpu, IgnoresBrandCaseSpacesAndDashes) {
  for (const char* name : {"4090", "rtx4090", "RTX 4090", "rtx-4090", "GeForce RTX 4090",
                           "4090 24GB", "nvidia geforce rtx_4090", "NVIDIAGeForceRTX4090"}) {
    EXPECT_EQ(Found(name), "GeForce RTX 4090") << name;
  }
  EXPECT_EQ(Found("4090 laptop"), "GeForce RTX 4090 Laptop GPU");
  EXPECT_EQ(Found("t4"), "Tesla T4");
  EXPECT_EQ(Found("a10"), "A10");
  EXPECT_EQ(Found("a10g"), "A10G");
  EXPECT_EQ(Found("l40s"), "L40S");
  EXPECT_EQ(Found("Tesla A100-SXM4-40GB"), "A100-SXM4-40GB");
  EXPECT_EQ(Found("a100-80gb-sxm"), "A100-SXM4-80GB");
  EXPECT_EQ(Found("a100 pcie 80gb"), "A100 80GB PCIe");
  EXPECT_EQ(Found("v100-32gb"), "Tesla V100-SXM2-32GB");
  EXPECT_EQ(Found("3080ti"), "GeForce RTX 3080 Ti");
  EXPECT_EQ(Found("3080 12gb"), "GeForce RTX 3080 12GB");
  EXPECT_EQ(Found("h100 sxm"), "H100 80GB HBM3");
  EXPECT_EQ(Found("h100 nvl"), "H100 NVL");
  EXPECT_EQ(Found("gh200 144gb"), "GH200 144G HBM3e");
  EXPECT_EQ(Found("rtx 6000 ada"), "RTX 6000 Ada Generation");
  EXPECT_EQ(Found("rtx pro 6000"), "RTX PRO 6000 Blackwell Workstation Edition");
  EXPECT_EQ(Found("titan rtx"), "TITAN RTX");
  EXPECT_EQ(Found("b300"), "B300 SXM6 AC");
}

TEST(FindGpu, TakesTheSmallestOfSeveral) {
  EXPECT_EQ(Found("a100"), "A100-SXM4-40GB");
  EXPECT_EQ(Found("a100-80gb"), "A100-SXM4-80GB");
  EXPECT_EQ(Found("v100"), "Tesla V100-SXM2-16GB");
  EXPECT_EQ(Found("3080"), "GeForce RTX 3080");
  EXPECT_EQ(Found("4060 ti"), "GeForce RTX 4060 Ti");
  EXPECT_EQ(Found("gh200"), "GH200 480GB");
  EXPECT_EQ(Found("rtx 6000"), "Quadro RTX 6000");
  EXPECT_EQ(Found("h100"), "H100 80GB HBM3");
}

TEST(FindGpu, NamesTheNearestOfAnUnknownName) {
  EXPECT_EQ(Found("rtx 4099"),
            "unknown GPU \"rtx 4099\": did you mean \"GeForce RTX 4090\"? headroom gpus lists "
            "all; for a card without a name: --memory 24GiB");
  EXPECT_THAT(Found("h1000"), HasSubstr("did you mean \"H100 80GB HBM3\""));
  EXPECT_THAT(Found("4090 80gb"), HasSubstr("unknown GPU"));
  for (const char* name : {"", "nvidia", "titan", "rtx", "gb", "laptop", "a1", "mi300x"}) {
    EXPECT_THAT(Found(name), HasSubstr("unknown GPU")) << name;
  }
  EXPECT_EQ(Found("x\ny").find('\n'), std::string::npos);
  EXPECT_LT(Found(std::string(1 << 20, 'x')).size(), 300u);
}

}  // namespace
}  // namespace headroom
