// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/format.h"

namespace headroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

ModelConfig Parse(std::string_view text) {
  Result<ModelConfig> config = ModelConfig::FromJson(text, "config.json");
  EXPECT_TRUE(config.ok()) << config.error().message;
  return *std::move(config);
}

std::string ErrorOf(std::string_view text) {
  const Result<ModelConfig> config = ModelConfig::FromJson(text, "config.json");
  if (config.ok()) return "accepted";
  EXPECT_THAT(config.error().message, Not(HasSubstr("\n")));
  return config.error().message;
}

std::string Config(std::string_view type, std::string_view key, std::string_view value) {
  return Format(R"({{"model_type": "{}", "{}": {}}})", type, key, value);
}

// ---- Defaults and names ----

TEST(ModelConfig, FillsDefaultsOfTheClass) {
  const ModelConfig config = Parse(R"({"model_type": "bert", "hidden_size": 1024})");
  EXPECT_EQ(config.model_type(), "bert");
  EXPECT_EQ(config.Int("hidden_size"), 1024);
  EXPECT_EQ(config.Int("vocab_size"), 30522);
  EXPECT_EQ(config.Float("hidden_dropout_prob"), 0.1);
  EXPECT_EQ(config.String("hidden_act"), "gelu");
  EXPECT_TRUE(config.Bool("tie_word_embeddings"));
  EXPECT_EQ(config.Int("num_labels"), 2);
  EXPECT_FALSE(config.Has("classifier_dropout"));
  EXPECT_EQ(config.MaybeFloat("classifier_dropout"), std::nullopt);
  EXPECT_THAT(config.warnings(), IsEmpty());
}

TEST(ModelConfig, EveryKnownTypeHasDefaults) {
  for (const std::string_view type : ModelConfig::KnownModelTypes()) {
    const Result<ModelConfig> config = ModelConfig::Default(type);
    ASSERT_TRUE(config.ok()) << type << ": " << config.error().message;
    EXPECT_TRUE(config->Has("hidden_size")) << type;
    EXPECT_TRUE(config->Has("num_hidden_layers")) << type;
    EXPECT_TRUE(config->Has("num_attention_heads")) << type;
  }
}

TEST(ModelConfig, KnownTypesAreSorted) {
  const std::vector<std::string_view> types = ModelConfig::KnownModelTypes();
  EXPECT_TRUE(std::is_sorted(types.begin(), types.end()));
  EXPECT_GT(types.size(), 50u);
}

TEST(ModelConfig, TakesEitherNameOfAnAttribute) {
  const ModelConfig own = Parse(R"({"model_type": "gpt2", "n_embd": 1280, "n_layer": 36})");
  EXPECT_EQ(own.Int("hidden_size"), 1280);
  EXPECT_EQ(own.Int("n_embd"), 1280);
  const ModelConfig standard = Parse(R"({"model_type": "gpt2", "hidden_size": 1280})");
  EXPECT_EQ(standard.Int("n_embd"), 1280);
  EXPECT_EQ(standard.Int("n_inner"), 5120);
}

TEST(ModelConfig, SaysWhichOfTwoNamesCounts) {
  const ModelConfig config = Parse(R"({"model_type": "gpt2", "n_embd": 64, "hidden_size": 32})");
  EXPECT_EQ(config.Int("n_embd"), 32);
  ASSERT_THAT(config.warnings(), SizeIs(1));
  EXPECT_THAT(config.warnings()[0], HasSubstr("the same attribute"));
}

TEST(ModelConfig, MoeNamesOfTheExpertsAreOneAttribute) {
  EXPECT_EQ(Parse(R"({"model_type": "qwen3_moe", "num_experts": 32})").Int("num_local_experts"),
            32);
  EXPECT_EQ(Parse(R"({"model_type": "mixtral", "num_local_experts": 4})").Int("num_experts"), 4);
}

// ---- Derived values ----

TEST(ModelConfig, DerivesHeadSizesFromTheFile) {
  const ModelConfig config =
      Parse(R"({"model_type": "llama", "hidden_size": 576, "num_attention_heads": 9})");
  EXPECT_EQ(config.Int("head_dim"), 64);
  EXPECT_EQ(config.Int("num_key_value_heads"), 9);
}

TEST(ModelConfig, NullMeansDerived) {
  const ModelConfig config =
      Parse(R"({"model_type": "qwen2", "num_attention_heads": 16, "num_key_value_heads": null})");
  EXPECT_EQ(config.Int("num_key_value_heads"), 16);
}

TEST(ModelConfig, DerivesInnerSizes) {
  EXPECT_EQ(Parse(R"({"model_type": "gpt_neo", "hidden_size": 768, "num_layers": 12,
                      "attention_types": [[["global", "local"], 6]]})")
                .Int("intermediate_size"),
            3072);
  EXPECT_EQ(Parse(R"({"model_type": "falcon", "hidden_size": 142})").Int("ffn_hidden_size"), 568);
  EXPECT_EQ(Parse(R"({"model_type": "falcon"})").Int("num_kv_heads"), 71);
  EXPECT_EQ(Parse(R"({"model_type": "opt"})").Int("word_embed_proj_dim"), 768);
  EXPECT_EQ(Parse(R"({"model_type": "bloom", "n_embed": 1024})").Int("hidden_size"), 1024);
  EXPECT_EQ(Parse(R"({"model_type": "gpt_bigcode"})").Int("num_key_value_heads"), 1);
  EXPECT_EQ(Parse(R"({"model_type": "marian"})").Int("decoder_vocab_size"), 58101);
}

TEST(ModelConfig, T5IsAlwaysTiedAndScalesUnlessToldOtherwise) {
  const ModelConfig v1 = Parse(R"({"model_type": "t5", "num_layers": 12})");
  EXPECT_EQ(v1.Int("num_decoder_layers"), 12);
  EXPECT_TRUE(v1.Bool("scale_decoder_outputs"));
  EXPECT_FALSE(v1.Bool("is_gated_act"));
  const ModelConfig v11 = Parse(
      R"({"model_type": "t5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false})");
  EXPECT_TRUE(v11.Bool("tie_word_embeddings"));
  EXPECT_FALSE(v11.Bool("scale_decoder_outputs"));
  EXPECT_TRUE(v11.Bool("is_gated_act"));
  EXPECT_EQ(v11.String("dense_act_fn"), "gelu_new");
}

TEST(ModelConfig, LayerTypesFollowThePatternOfTheClass) {
  const ModelConfig gemma = Parse(R"({"model_type": "gemma3_text", "num_hidden_layers": 7})");
  EXPECT_EQ(gemma.Strings("layer_types")[4], "sliding_attention");
  EXPECT_EQ(gemma.Strings("layer_types")[5], "full_attention");
  const ModelConfig modern = Parse(R"({"model_type": "modernbert", "num_hidden_layers": 4})");
  EXPECT_THAT(modern.Strings("layer_types"), ElementsAre("full_attention", "sliding_attention",
                                                         "sliding_attention", "full_attention"));
  EXPECT_EQ(modern.Int("sliding_window"), 64);
  const ModelConfig qwen = Parse(R"({"model_type": "qwen2", "num_hidden_layers": 2})");
  EXPECT_THAT(qwen.Strings("layer_types"), ElementsAre("full_attention", "full_attention"));
  EXPECT_FALSE(qwen.Has("sliding_window"));
  const ModelConfig neo = Parse(R"({"model_type": "gpt_neo", "num_layers": 3,
                                    "attention_types": [[["global", "local", "local"], 1]]})");
  EXPECT_THAT(neo.Strings("attention_layers"), ElementsAre("global", "local", "local"));
}

TEST(ModelConfig, FoldsLegacyRopeKeys) {
  const ModelConfig config = Parse(R"({"model_type": "llama", "rope_theta": 500000.0,
      "max_position_embeddings": 131072,
      "rope_scaling": {"factor": 8.0, "rope_type": "llama3"}})");
  const std::optional<ModelConfig> rope = config.Object("rope_parameters");
  ASSERT_TRUE(rope);
  EXPECT_EQ(rope->Float("rope_theta"), 500000.0);
  EXPECT_EQ(rope->String("rope_type"), "llama3");
  EXPECT_EQ(rope->Int("original_max_position_embeddings"), 131072);
  EXPECT_FALSE(config.Has("rope_theta"));
}

TEST(ModelConfig, RopeDefaultsDifferByClass) {
  const auto rope = [](std::string_view type) {
    return *ModelConfig::Default(type).value().Object("rope_parameters");
  };
  EXPECT_EQ(rope("llama").Float("rope_theta"), 10000.0);
  EXPECT_EQ(rope("mixtral").Float("rope_theta"), 1e6);
  EXPECT_EQ(rope("phi").Float("partial_rotary_factor"), 0.5);
  EXPECT_EQ(rope("gpt_neox").Float("partial_rotary_factor"), 0.25);
  EXPECT_EQ(rope("gemma3_text").Object("sliding_attention")->Float("rope_theta"), 10000.0);
  EXPECT_EQ(rope("gemma3_text").Object("full_attention")->Float("rope_theta"), 1e6);
}

TEST(ModelConfig, NestedObjectsKeepTheirDefaults) {
  const ModelConfig config =
      Parse(R"({"model_type": "mpt", "attn_config": {"alibi": false, "attn_impl": "flash"}})");
  const std::optional<ModelConfig> attention = config.Object("attn_config");
  ASSERT_TRUE(attention);
  EXPECT_FALSE(attention->Bool("alibi"));
  EXPECT_EQ(attention->Int("alibi_bias_max"), 8);
}

// ---- Labels, dtype, architectures, composites ----

TEST(ModelConfig, CountsLabels) {
  EXPECT_EQ(Parse(R"({"model_type": "vit", "id2label": {"0": "a", "1": "b", "2": "c"}})")
                .Int("num_labels"),
            3);
  EXPECT_EQ(Parse(R"({"model_type": "vit", "num_labels": 10})").Int("num_labels"), 10);
  EXPECT_EQ(Parse(R"({"model_type": "bart"})").Int("num_labels"), 3);
}

TEST(ModelConfig, ReadsBothSpellingsOfDType) {
  EXPECT_EQ(Parse(R"({"model_type": "llama", "torch_dtype": "bfloat16"})").dtype(),
            DType::kBFloat16);
  EXPECT_EQ(
      Parse(R"({"model_type": "llama", "dtype": "float16", "torch_dtype": "float32"})").dtype(),
      DType::kFloat16);
  EXPECT_EQ(Parse(R"({"model_type": "llama", "dtype": null})").dtype(), std::nullopt);
  const ModelConfig fp8 = Parse(R"({"model_type": "llama", "dtype": "float8_e4m3fn"})");
  EXPECT_EQ(fp8.dtype(), std::nullopt);
  EXPECT_THAT(fp8.warnings(), SizeIs(1));
}

TEST(ModelConfig, KeepsArchitectures) {
  EXPECT_THAT(
      Parse(R"({"model_type": "bert", "architectures": ["BertForMaskedLM"]})").architectures(),
      ElementsAre("BertForMaskedLM"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "bert", "architectures": "BertForMaskedLM"})"),
              HasSubstr("architectures"));
}

TEST(ModelConfig, CompositeYieldsItsTextPart) {
  const ModelConfig llava = Parse(R"({"model_type": "llava", "torch_dtype": "float16",
      "text_config": {"model_type": "mistral", "hidden_size": 512},
      "vision_config": {"hidden_size": 1024}})");
  EXPECT_EQ(llava.model_type(), "mistral");
  EXPECT_EQ(llava.Int("hidden_size"), 512);
  EXPECT_EQ(llava.dtype(), DType::kFloat16);
  EXPECT_THAT(llava.warnings(), ElementsAre(HasSubstr("text part")));
  EXPECT_EQ(Parse(R"({"model_type": "gemma3", "text_config": {}})").model_type(), "gemma3_text");
}

TEST(ModelConfig, OldQwen2VlKeepsItsTextPartOnTop) {
  const ModelConfig config = Parse(
      R"({"model_type": "qwen2_vl", "hidden_size": 1536, "vision_config": {"hidden_size": 8}})");
  EXPECT_EQ(config.model_type(), "qwen2_vl_text");
  EXPECT_EQ(config.Int("hidden_size"), 1536);
}

TEST(ModelConfig, UnknownCompositeWithKnownTextPartIsRead) {
  const ModelConfig config = Parse(R"({"model_type": "some_vlm",
      "text_config": {"model_type": "qwen2", "hidden_size": 896}})");
  EXPECT_EQ(config.model_type(), "qwen2");
}

TEST(ModelConfig, CompositeOfCompositesIsRefused) {
  EXPECT_THAT(ErrorOf(R"({"model_type": "llava", "text_config": {"model_type": "gemma3"}})"),
              Not("accepted"));
}

// ---- With, ToJson ----

TEST(ModelConfig, WithDerivesAnew) {
  const ModelConfig config = Parse(R"({"model_type": "llama", "hidden_size": 512,
                                       "num_attention_heads": 8})");
  const ModelConfig wider = config.With("hidden_size", "1024");
  EXPECT_EQ(wider.Int("head_dim"), 128);
  EXPECT_EQ(config.Int("head_dim"), 64);
  EXPECT_EQ(wider.With("num_hidden_layers", "3").Int("hidden_size"), 1024);
}

TEST(ModelConfig, ToJsonReadsBackTheSame) {
  for (const std::string_view type : ModelConfig::KnownModelTypes()) {
    const std::string text = ModelConfig::Default(type).value().ToJson();
    EXPECT_EQ(Parse(text).ToJson(), text) << type;
  }
}

// ---- What is refused, and what is not ----

TEST(ModelConfig, NamesNearestModelType) {
  EXPECT_EQ(ErrorOf(R"({"model_type": "bertt"})"),
            "config.json: unknown model_type \"bertt\": did you mean \"bert\"?");
  EXPECT_THAT(ErrorOf(R"({"model_type": "qqqqqqq"})"), HasSubstr("those are albert, bart"));
}

TEST(ModelConfig, SaysWhatToDoWithoutModelType) {
  EXPECT_THAT(ErrorOf(R"({"hidden_size": 768})"), HasSubstr("add"));
  EXPECT_THAT(ErrorOf(R"({"model_type": null})"), HasSubstr("add"));
  EXPECT_THAT(ErrorOf(R"({"model_type": 3})"), HasSubstr("must be a string"));
}

TEST(ModelConfig, RefusesWhatIsNoJsonObject) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf(" \n"), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf("[1, 2]"), HasSubstr("a JSON object"));
  EXPECT_THAT(ErrorOf("model_type: bert"), HasSubstr("not valid JSON at column 1"));
  EXPECT_THAT(ErrorOf("{\"model_type\": \"bert\",\n \"hidden_size\": NaN}"),
              HasSubstr("line 2, column 17"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "bert")"), HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf("{\"model_type\": \"b\xff\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "bert", "hidden_size": 1e999})"), HasSubstr("too large"));
}

TEST(ModelConfig, RefusesDeepNesting) {
  const std::string deep =
      R"({"model_type": "bert", "x": )" + std::string(100, '[') + std::string(100, ']') + "}";
  EXPECT_THAT(ErrorOf(deep), HasSubstr("64 levels"));
  const std::string endless = R"({"x": )" + std::string(1 << 20, '[');
  EXPECT_THAT(ErrorOf(endless), HasSubstr("config.json: "));
}

TEST(ModelConfig, RefusesLargeFiles) {
  EXPECT_THAT(ErrorOf(std::string((8 << 20) + 1, ' ')), HasSubstr("8.0 MiB"));
}

TEST(ModelConfig, AcceptsByteOrderMark) {
  EXPECT_EQ(Parse("\xEF\xBB\xBF{\"model_type\": \"bert\"}").model_type(), "bert");
}

TEST(ModelConfig, LastOfTwoEqualKeysCounts) {
  const ModelConfig config =
      Parse(R"({"model_type": "bert", "hidden_size": 64, "hidden_size": 128})");
  EXPECT_EQ(config.Int("hidden_size"), 128);
  EXPECT_THAT(config.warnings(), ElementsAre(HasSubstr("stands twice")));
}

TEST(ModelConfig, RefusesWrongTypes) {
  for (const std::string_view value : {"\"768\"", "768.0", "true", "[768]", "{}"}) {
    EXPECT_THAT(ErrorOf(Config("bert", "hidden_size", value)),
                HasSubstr("\"hidden_size\" must be a whole number"))
        << value;
  }
  EXPECT_THAT(ErrorOf(Config("bert", "hidden_dropout_prob", "\"0.1\"")), HasSubstr("a number"));
  EXPECT_THAT(ErrorOf(Config("bert", "is_decoder", "0")), HasSubstr("true or false"));
  EXPECT_THAT(ErrorOf(Config("bert", "hidden_act", "1")), HasSubstr("a string"));
  EXPECT_THAT(ErrorOf(Config("qwen2", "layer_types", "\"full\"")), HasSubstr("a list"));
  EXPECT_THAT(ErrorOf(Config("llama", "rope_parameters", "[]")), HasSubstr("an object"));
  EXPECT_THAT(ErrorOf(Config("llama", "rope_theta", "\"1e4\"")), HasSubstr("rope_theta"));
  EXPECT_THAT(ErrorOf(Config("mpt", "attn_config", R"({"alibi": "yes"})")), HasSubstr("alibi"));
  EXPECT_THAT(ErrorOf(Config("gpt_neo", "attention_types", "[1]")), HasSubstr("look like"));
}

TEST(ModelConfig, RefusesSizesOutOfRange) {
  for (const std::string_view value : {"0", "-1", "2147483649", "18446744073709551615"}) {
    EXPECT_THAT(ErrorOf(Config("bert", "hidden_size", value)),
                HasSubstr("must be between 1 and 2147483648"))
        << value;
  }
  EXPECT_THAT(ErrorOf(Config("bert", "num_hidden_layers", "20000")), HasSubstr("16384"));
  EXPECT_THAT(ErrorOf(Config("bert", "hidden_dropout_prob", "1.5")), HasSubstr("probability"));
  EXPECT_THAT(ErrorOf(Config("vit", "num_labels", "0")), HasSubstr("num_labels"));
}

TEST(ModelConfig, RefusesDerivedSizesOutOfRange) {
  EXPECT_THAT(ErrorOf(R"({"model_type": "llama", "hidden_size": 6})"), HasSubstr("less than"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "gpt2", "n_embd": 2147483648})"), HasSubstr("n_inner"));
}

TEST(ModelConfig, RefusesNullWhereTheClassHasAValue) {
  EXPECT_THAT(ErrorOf(Config("bert", "hidden_size", "null")), HasSubstr("not null"));
  EXPECT_THAT(ErrorOf(Config("bart", "d_model", "null")), HasSubstr("not null"));
  EXPECT_THAT(ErrorOf(Config("bart", "activation_function", "null")), HasSubstr("not null"));
  EXPECT_FALSE(Parse(Config("falcon", "alibi", "null")).Bool("alibi"));
  EXPECT_EQ(Parse(Config("llama", "attention_dropout", "null")).Float("attention_dropout"), 0);
  EXPECT_FALSE(Parse(Config("mistral", "sliding_window", "null")).Has("sliding_window"));
  EXPECT_FALSE(
      Parse(Config("gemma2", "attn_logit_softcapping", "null")).Has("attn_logit_softcapping"));
}

TEST(ModelConfig, RefusesListsThatDisagreeWithTheLayers) {
  EXPECT_THAT(ErrorOf(R"({"model_type": "gpt_neo", "num_layers": 12})"), HasSubstr("set both"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "qwen2", "num_hidden_layers": 2,
                          "layer_types": ["full_attention"]})"),
              HasSubstr("make them equal"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "gpt_neo", "num_layers": 12,
                          "attention_types": [[["global"], 2147483648]]})"),
              HasSubstr("more layers"));
}

TEST(ModelConfig, WarnsOfMisspellingsOnly) {
  const ModelConfig config = Parse(R"({"model_type": "bert", "hiden_size": 1024,
      "numHiddenLayers": 2, "gradient_checkpointing": false, "position_embedding_type": "absolute",
      "directionality": "bidi", "pooler_fc_size": 768})");
  EXPECT_THAT(config.warnings(), SizeIs(2));
  EXPECT_THAT(config.warnings(), ElementsAre(HasSubstr("did you mean \"hidden_size\"?"),
                                             HasSubstr("did you mean \"num_hidden_layers\"?")));
  EXPECT_EQ(config.Int("hidden_size"), 768);
}

TEST(ModelConfig, MessagesStayShortAndOnOneLine) {
  const std::string name(100000, 'x');
  EXPECT_LT(ErrorOf("{\"model_type\": \"" + name + "\"}").size(), 1500u);
  EXPECT_THAT(ErrorOf("{\"model_type\": \"a\\nb\"}"), HasSubstr("a\\nb"));
}

TEST(ModelConfig, ViTTakesEqualSidesAsOne) {
  EXPECT_EQ(Parse(Config("vit", "image_size", "[224, 224]")).Int("image_size"), 224);
  EXPECT_THAT(ErrorOf(Config("vit", "image_size", "[224, 256]")), HasSubstr("image_size"));
}

}  // namespace
}  // namespace headroom
