// SPDX-License-Identifier: Apache-2.0
#include "model/recipe.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(RecipeNames, TasksRoundTrip) {
  for (const Task task :
       {Task::kSequenceClassification, Task::kTokenClassification, Task::kCausalLm, Task::kMaskedLm,
        Task::kSeq2SeqLm, Task::kImageClassification}) {
    EXPECT_EQ(ParseTask(Name(task)), task);
  }
  EXPECT_EQ(Name(Task::kSeq2SeqLm), "seq2seq-lm");
}

TEST(RecipeNames, HubTaskNamesAreAliases) {
  EXPECT_EQ(ParseTask("text-classification"), Task::kSequenceClassification);
  EXPECT_EQ(ParseTask("fill-mask"), Task::kMaskedLm);
}

TEST(RecipeNames, PrecisionsRoundTrip) {
  for (const Precision precision :
       {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
    EXPECT_EQ(ParsePrecision(Name(precision)), precision);
  }
}

TEST(RecipeNames, AttentionsRoundTrip) {
  for (const AttnImplementation attn :
       {AttnImplementation::kAuto, AttnImplementation::kEager, AttnImplementation::kSdpa,
        AttnImplementation::kFlashAttention2}) {
    EXPECT_EQ(ParseAttnImplementation(Name(attn)), attn);
  }
}

TEST(RecipeNames, EveryOptimNameIsRead) {
  for (const std::string_view name : OptimNames()) EXPECT_TRUE(ParseOptim(name)) << name;
  EXPECT_EQ(ParseOptim("adamw_8bit"), Optim::kAdamW8bit);
  EXPECT_EQ(Name(Optim::kAdamW8bit), "adamw_bnb_8bit");
}

TEST(RecipeNames, OtherNamesAreRefused) {
  EXPECT_FALSE(ParseTask("causal_lm"));
  EXPECT_FALSE(ParsePrecision("fp8"));
  EXPECT_FALSE(ParseAttnImplementation("flash"));
  EXPECT_FALSE(ParseOptim(""));
}

}  // namespace
}  // namespace headroom
