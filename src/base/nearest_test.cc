// SPDX-License-Identifier: Apache-2.0
#include "base/nearest.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

constexpr std::string_view kNames[] = {"bert", "gpt2", "llama", "deberta-v2", "NVIDIA RTX 4090"};

TEST(Nearest, FindsTypingErrors) {
  EXPECT_EQ(Nearest("bertt", kNames), "bert");
  EXPECT_EQ(Nearest("GPT-2", kNames), "gpt2");
  EXPECT_EQ(Nearest("deberta_v3", kNames), "deberta-v2");
  EXPECT_EQ(Nearest("4090", kNames), "NVIDIA RTX 4090");
}

TEST(Nearest, KeepsSilentWhenNothingIsNear) {
  EXPECT_EQ(Nearest("mamba", kNames), "");
  EXPECT_EQ(Nearest("", kNames), "");
  EXPECT_EQ(DidYouMean("mamba", kNames), "");
  EXPECT_EQ(Nearest(std::string(100000, 'x'), kNames), "");
}

TEST(Nearest, MakesTheQuestion) {
  EXPECT_EQ(DidYouMean("lama", kNames), ": did you mean \"llama\"?");
}

}  // namespace
}  // namespace headroom
