// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/data/test_folder.h"
#include "engine/data/tokenizer.h"

namespace headroom::engine {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

const std::filesystem::path kData = std::filesystem::path(HEADROOM_TEST_DATA) / "tokenizers";

Json ReadJsonOf(const std::filesystem::path& path) { return Json::parse(std::ifstream(path)); }

class BpeTrainerTest : public FolderTest {
 protected:
  const std::vector<std::string> lines_ = ReadJsonOf(kData / "goldens.json")["training_lines"];
};

TEST_F(BpeTrainerTest, LearnsWhatTheLibraryLearns) {
  const auto tokenizer = TrainByteBpe(lines_, 420, {"<|endoftext|>"});
  ASSERT_TRUE(tokenizer.ok());
  ASSERT_TRUE(tokenizer->Save(folder_).ok());
  const Json ours = ReadJsonOf(folder_ / "tokenizer.json")["model"];
  const Json theirs = ReadJsonOf(kData / "gpt2.json")["model"];
  EXPECT_EQ(ours["vocab"], theirs["vocab"]);
  ASSERT_EQ(ours["merges"].size(), theirs["merges"].size());
  for (size_t i = 0; i < ours["merges"].size(); ++i) {
    EXPECT_EQ(ours["merges"][i], theirs["merges"][i][0].get<std::string>() + " " +
                                     theirs["merges"][i][1].get<std::string>());
  }
}

TEST_F(BpeTrainerTest, SavesATokenizerThatLoads) {
  const auto trained = TrainByteBpe(lines_, 400, {"<pad>", "<s>", "</s>"});
  ASSERT_TRUE(trained.ok());
  EXPECT_EQ(trained->special().pad, 0);
  EXPECT_EQ(trained->special().eos, 2);
  EXPECT_LE(trained->vocab_size(), 400);
  ASSERT_TRUE(trained->Save(folder_).ok());
  const auto loaded = Tokenizer::Load(folder_);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  for (const std::string& line : lines_) {
    const auto ids = loaded->Encode(line);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(ids->ids, trained->Encode(line)->ids);
    EXPECT_EQ(loaded->Decode(ids->ids), line);
  }
}

TEST_F(BpeTrainerTest, StopsWhenNoPairStandsTwice) {
  const std::vector<std::string> lines = {"abab", "xy"};
  const auto tokenizer = TrainByteBpe(lines, 1000, {});
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_TRUE(tokenizer->Id("ab").has_value());
}

TEST_F(BpeTrainerTest, RefusesVocabulariesTooSmall) {
  EXPECT_THAT(TrainByteBpe(lines_, 256, {"<pad>"}).error().message,
              HasSubstr("a vocabulary of 256 tokens: bytes and special tokens are 257"));
  EXPECT_FALSE(TrainByteBpe(lines_, 2'000'000, {}).ok());
}

}  // namespace
}  // namespace headroom::engine
