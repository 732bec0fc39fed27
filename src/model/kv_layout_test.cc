// SPDX-License-Identifier: Apache-2.0
#include "model/kv_layout.h"

#include <gtest/gtest.h>

#include <string>

#include "model/catalogue.h"

namespace headroom {
namespace {

int64_t BytesPerToken(const char* name) {
  const KnownModel* known = FindKnownModel(name);
  EXPECT_NE(known, nullptr) << name;
  const Result<ModelConfig> config = ModelConfig::FromJson(known->config_json, name);
  EXPECT_TRUE(config.ok()) << name;
  return KvLayoutOf(*config).BytesPerToken(DType::kBFloat16);
}

TEST(KvLayout, CountsEveryHeadOfMultiHeadAttention) {
  EXPECT_EQ(BytesPerToken("meta-llama/Llama-2-7b-hf"), 524288);
}

TEST(KvLayout, CountsTheHeadsThatGroupsShare) {
  EXPECT_EQ(BytesPerToken("meta-llama/Llama-3.1-8B"), 131072);
  EXPECT_EQ(BytesPerToken("meta-llama/Llama-2-70b-hf"), 327680);
}

TEST(KvLayout, CountsTheOneHeadOfMultiQueryAttention) {
  EXPECT_EQ(BytesPerToken("bigcode/starcoder"), 20480);
  EXPECT_EQ(BytesPerToken("tiiuae/falcon-7b"), 8192);
}

// Falcon 40B has 8 heads of keys and caches the 128 that its queries see.
TEST(KvLayout, CountsWhatFalconRepeatsBeforeItCaches) {
  EXPECT_EQ(BytesPerToken("tiiuae/falcon-40b"), 60 * 2 * 128 * 64 * 2);
}

TEST(KvLayout, CountsTheDecoderOfAnEncoderDecoder) {
  EXPECT_EQ(BytesPerToken("google-t5/t5-small"), 6 * 2 * 8 * 64 * 2);
  EXPECT_EQ(BytesPerToken("facebook/bart-large"), 12 * 2 * 16 * 64 * 2);
}

}  // namespace
}  // namespace headroom
