// SPDX-License-Identifier: Apache-2.0
#include "model/lora.h"

#include <gtest/gtest.h>

#include <string>

namespace headroom {
namespace {

ModelConfig Model(const std::string& json) {
  Result<ModelConfig> config = ModelConfig::FromJson(json, "test");
  EXPECT_TRUE(config.ok());
  return *std::move(config);
}

constexpr char kLlama[] =
    R"({"model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "tie_word_embeddings": false})";

Result<ParameterTable> Adapted(const std::string& model, const std::string& lora, Task task) {
  const ModelConfig config = Model(model);
  HEADROOM_ASSIGN_OR_RETURN(const ParameterTable table, ParameterTable::Build(config, task));
  HEADROOM_ASSIGN_OR_RETURN(const LoraConfig parsed, ParseLoraConfig(lora));
  return ApplyLora(parsed, config, table);
}

TEST(Lora, PutsFp32MatricesBehindTheFrozenBaseLayer) {
  const Result<ParameterTable> table =
      Adapted(kLlama, R"({"r": 8, "target_modules": ["q_proj"]})", Task::kCausalLm);
  ASSERT_TRUE(table.ok()) << table.error().message;
  const std::string at = "model.layers.0.self_attn.q_proj";
  const ParameterSpec* base = table->Find(at + ".base_layer.weight");
  const ParameterSpec* a = table->Find(at + ".lora_A.default.weight");
  const ParameterSpec* b = table->Find(at + ".lora_B.default.weight");
  ASSERT_TRUE(base != nullptr && a != nullptr && b != nullptr);
  EXPECT_TRUE(base->frozen);
  EXPECT_FALSE(a->frozen);
  EXPECT_EQ(a->dtype, DType::kFloat32);
  EXPECT_EQ(a->shape, (Shape{8, 64}));
  EXPECT_EQ(b->shape, (Shape{64, 8}));
  EXPECT_EQ(base + 1, a);
  EXPECT_EQ(a + 1, b);
  EXPECT_EQ(table->trainable_count(), 2 * 2 * 8 * 64);
}

TEST(Lora, AllLinearLeavesTheHeadAlone) {
  const Result<ParameterTable> table =
      Adapted(kLlama, R"({"target_modules": "all-linear"})", Task::kCausalLm);
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->Find("lm_head.lora_A.default.weight"), nullptr);
  EXPECT_NE(table->Find("model.layers.1.mlp.down_proj.lora_A.default.weight"), nullptr);
}

TEST(Lora, TakesPeftsTargetsWhereNoneAreNamed) {
  const Result<ParameterTable> table = Adapted(kLlama, "{}", Task::kCausalLm);
  ASSERT_TRUE(table.ok());
  EXPECT_NE(table->Find("model.layers.0.self_attn.v_proj.lora_B.default.weight"), nullptr);
  EXPECT_EQ(table->Find("model.layers.0.self_attn.k_proj.lora_B.default.weight"), nullptr);
}

TEST(Lora, KnowsConv1DByItsTransposedWeight) {
  const Result<ParameterTable> table =
      Adapted(R"({"model_type": "gpt2", "n_layer": 1})", R"({"r": 4})", Task::kCausalLm);
  ASSERT_TRUE(table.ok());
  const ParameterSpec* b = table->Find("transformer.h.0.attn.c_attn.lora_B.default.weight");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (Shape{2304, 4}));
}

TEST(Lora, MatchesAWholePathWhenThePatternIsOneText) {
  const Result<ParameterTable> table =
      Adapted(kLlama, R"({"target_modules": ".*layers\\.1\\..*(q|k)_proj"})", Task::kCausalLm);
  ASSERT_TRUE(table.ok());
  EXPECT_NE(table->Find("model.layers.1.self_attn.k_proj.lora_A.default.weight"), nullptr);
  EXPECT_EQ(table->Find("model.layers.0.self_attn.k_proj.lora_A.default.weight"), nullptr);
}

TEST(Lora, TransformsOnlyTheLayersAskedFor) {
  const Result<ParameterTable> table = Adapted(
      kLlama, R"({"target_modules": ["q_proj"], "layers_to_transform": [1]})", Task::kCausalLm);
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->trainable_count(), 2 * 8 * 64);
}

TEST(Lora, SavedModulesStandTwiceAndTheCopyIsTrained) {
  const Result<ParameterTable> table = Adapted(
      kLlama, R"({"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]})", Task::kCausalLm);
  ASSERT_TRUE(table.ok());
  const ParameterSpec* original = table->Find("lm_head.original_module.weight");
  const ParameterSpec* copy = table->Find("lm_head.modules_to_save.default.weight");
  ASSERT_TRUE(original != nullptr && copy != nullptr);
  EXPECT_TRUE(original->frozen);
  EXPECT_FALSE(copy->frozen);
  EXPECT_FALSE(copy->dtype.has_value());
}

TEST(Lora, TrainsTheClassifierOfASequenceClassificationTask) {
  const Result<ParameterTable> table =
      Adapted(R"({"model_type": "bert", "num_hidden_layers": 1})", R"({"task_type": "SEQ_CLS"})",
              Task::kSequenceClassification);
  ASSERT_TRUE(table.ok());
  EXPECT_NE(table->Find("classifier.modules_to_save.default.bias"), nullptr);
}

TEST(Lora, TrainsBiasesAsAsked) {
  const char* model = R"({"model_type": "gpt2", "n_layer": 1})";
  const Result<ParameterTable> only = Adapted(model, R"({"bias": "lora_only"})", Task::kCausalLm);
  const Result<ParameterTable> all = Adapted(model, R"({"bias": "all"})", Task::kCausalLm);
  ASSERT_TRUE(only.ok() && all.ok());
  EXPECT_FALSE(only->Find("transformer.h.0.attn.c_attn.base_layer.bias")->frozen);
  EXPECT_TRUE(only->Find("transformer.h.0.ln_1.bias")->frozen);
  EXPECT_FALSE(all->Find("transformer.h.0.ln_1.bias")->frozen);
}

TEST(Lora, ListsTheModulesWhenNothingMatches) {
  const Result<ParameterTable> table =
      Adapted(kLlama, R"({"target_modules": ["c_attn"]})", Task::kCausalLm);
  ASSERT_FALSE(table.ok());
  EXPECT_NE(table.error().message.find("q_proj"), std::string::npos) << table.error().message;
  EXPECT_EQ(table.error().message.find('\n'), std::string::npos);
}

TEST(Lora, NamesComeBackAsTheyWereBefore) {
  EXPECT_EQ(PathBeforeLora("a.q_proj.base_layer.weight"), "a.q_proj.weight");
  EXPECT_EQ(PathBeforeLora("lm_head.modules_to_save.default.weight"), "lm_head.weight");
  EXPECT_EQ(PathBeforeLora("lm_head.original_module.weight"), "");
  EXPECT_EQ(PathBeforeLora("a.lora_A.default.weight"), "");
  EXPECT_EQ(PathBeforeLora("a.weight"), "a.weight");
}

TEST(LoraConfig, RefusesWhatPeftRefuses) {
  EXPECT_FALSE(ParseLoraConfig(R"({"r": 0})").ok());
  EXPECT_FALSE(ParseLoraConfig(R"({"bias": "some"})").ok());
  EXPECT_FALSE(ParseLoraConfig(R"({"lora_dropout": 1.5})").ok());
  EXPECT_FALSE(ParseLoraConfig(R"({"rank": 8})").ok());
  EXPECT_FALSE(ParseLoraConfig("[]").ok());
  const Result<LoraConfig> dora = ParseLoraConfig(R"({"use_dora": true})");
  ASSERT_FALSE(dora.ok());
  EXPECT_EQ(dora.error().code, ErrorCode::kUnsupported);
}

TEST(LoraConfig, ReadsASavedAdaptersConfig) {
  const Result<LoraConfig> config = ParseLoraConfig(
      R"({"peft_type": "LORA", "r": 16, "lora_alpha": 32, "target_modules": ["v_proj", "q_proj"],
          "rank_pattern": {}, "use_dora": false, "revision": null, "inference_mode": true})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->r, 16);
  EXPECT_EQ(config->target_modules->size(), 2u);
}

}  // namespace
}  // namespace headroom
