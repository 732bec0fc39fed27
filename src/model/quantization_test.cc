// SPDX-License-Identifier: Apache-2.0
#include "model/quantization.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

const QuantizedPart* FindPart(const std::vector<QuantizedPart>& parts, std::string_view name) {
  for (const QuantizedPart& part : parts) {
    if (part.name == name) return &part;
  }
  return nullptr;
}

std::vector<std::string> Paths(const std::vector<ModuleEntry>& modules) {
  std::vector<std::string> paths;
  for (const ModuleEntry& module : modules) paths.push_back(module.path);
  return paths;
}

ModelConfig Config(const char* json) {
  Result<ModelConfig> config = ModelConfig::FromJson(json, "test");
  EXPECT_TRUE(config.ok());
  return *config;
}

TEST(Quantization, Nf4KeepsOneMaximumOf64Elements) {
  const QuantizationConfig config{.type = QuantType::kNf4};
  const std::vector<QuantizedPart> parts = QuantizedParts(config, 4096, 4096);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(FindPart(parts, "weight")->shape, (Shape{8388608, 1}));
  EXPECT_EQ(FindPart(parts, "weight.absmax")->shape, (Shape{262144}));
  EXPECT_EQ(FindPart(parts, "weight.absmax")->dtype, DType::kFloat32);
  // 4.5 bits an element and the table.
  EXPECT_EQ(QuantizedBytes(config, 4096, 4096), Bytes(4096 * 4096 * 9 / 16 + 64));
}

TEST(Quantization, DoubleQuantizationKeepsMaximaIn8Bits) {
  const QuantizationConfig config{.type = QuantType::kNf4, .use_double_quant = true};
  const std::vector<QuantizedPart> parts = QuantizedParts(config, 4096, 4096);
  EXPECT_EQ(FindPart(parts, "weight.absmax")->dtype, DType::kUInt8);
  EXPECT_EQ(FindPart(parts, "weight.nested_absmax")->shape, (Shape{1024}));
  // 4 + 8/64 + 32/16384 bits an element, both tables and the offset.
  EXPECT_EQ(QuantizedBytes(config, 4096, 4096), Bytes(8388608 + 262144 + 1024 * 4 + 64 + 1024 + 4));
}

TEST(Quantization, OddSizesRoundUp) {
  const QuantizationConfig config{.type = QuantType::kFp4, .use_double_quant = true};
  const std::vector<QuantizedPart> parts = QuantizedParts(config, 3, 43);  // 129 elements
  EXPECT_EQ(FindPart(parts, "weight")->shape, (Shape{65, 1}));
  EXPECT_EQ(FindPart(parts, "weight.absmax")->shape, (Shape{3}));
  EXPECT_EQ(FindPart(parts, "weight.nested_absmax")->shape, (Shape{1}));
}

TEST(Quantization, Int8KeepsAScaleOfEachRow) {
  const QuantizationConfig config{.type = QuantType::kInt8};
  EXPECT_EQ(QuantizedBytes(config, 24576, 6144), Bytes(24576 * 6144 + 24576 * 4));
}

TEST(Quantization, LeavesHeadAndLastModule) {
  const ModelConfig config = Config(
      R"({"model_type":"llama","hidden_size":64,"intermediate_size":128,"num_hidden_layers":1,
          "num_attention_heads":4,"vocab_size":100})");
  const Result<ParameterTable> table = ParameterTable::Build(config, Task::kCausalLm);
  ASSERT_TRUE(table.ok());
  const std::vector<ModuleEntry> modules = {
      {"model.embed_tokens", ModuleKind::kEmbedding, 100, 64},
      {"model.layers.0.self_attn.q_proj", ModuleKind::kLinear, 64, 64},
      {"model.layers.0.mlp.down_proj", ModuleKind::kLinear, 128, 64},
      {"lm_head", ModuleKind::kLinear, 64, 100}};
  EXPECT_EQ(Paths(ConvertedModules({}, config, *table, modules)),
            (std::vector<std::string>{"model.layers.0.self_attn.q_proj",
                                      "model.layers.0.mlp.down_proj"}));
}

TEST(Quantization, SkipModulesReplaceTheDefault) {
  const ModelConfig config = Config(R"({"model_type":"llama","num_hidden_layers":1})");
  const Result<ParameterTable> table = ParameterTable::Build(config, Task::kCausalLm);
  ASSERT_TRUE(table.ok());
  const std::vector<ModuleEntry> modules = {
      {"model.layers.0.mlp.down_proj", ModuleKind::kLinear, 128, 64},
      {"lm_head", ModuleKind::kLinear, 64, 100}};
  const QuantizationConfig quantization{.skip_modules = std::vector<std::string>{"down_proj"}};
  EXPECT_EQ(Paths(ConvertedModules(quantization, config, *table, modules)),
            (std::vector<std::string>{"lm_head"}));
}

// get_keys_to_not_convert strips ".weight" alone: a classifier whose last parameter is its bias is
// converted.
TEST(Quantization, ConvertsAClassifierThatEndsInABias) {
  const ModelConfig config = Config(R"({"model_type":"bert","num_hidden_layers":1})");
  const Result<ParameterTable> table = ParameterTable::Build(config, Task::kSequenceClassification);
  ASSERT_TRUE(table.ok());
  const std::vector<ModuleEntry> modules = {{"classifier", ModuleKind::kLinear, 768, 2, true}};
  EXPECT_EQ(Paths(ConvertedModules({}, config, *table, modules)),
            (std::vector<std::string>{"classifier"}));
}

TEST(Quantization, NamesAreThoseOfBitsandbytes) {
  EXPECT_EQ(ParseQuantType("nf4"), QuantType::kNf4);
  EXPECT_EQ(Name(QuantType::kFp4), "fp4");
  EXPECT_EQ(ParseQuantType("int4"), std::nullopt);
}

}  // namespace
}  // namespace headroom
