// SPDX-License-Identifier: Apache-2.0
#include "engine/data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "engine/data/test_folder.h"

namespace headroom::engine {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const fs::path kData = fs::path(HEADROOM_TEST_DATA) / "tokenizers";

const Json& Goldens() {
  static const Json goldens = Json::parse(std::ifstream(kData / "goldens.json"));
  return goldens;
}

Tokenizer LoadGolden(const std::string& name) {
  auto tokenizer = Tokenizer::Load(kData / (name + ".json"));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return *std::move(tokenizer);
}

// Goldens of bench/tokenizer_goldens.py: what Hugging Face's tokenizers makes of hard lines.
class TokenizerGoldens : public ::testing::TestWithParam<std::string> {
 protected:
  const Json& golden() const { return Goldens()["tokenizers"][GetParam()]; }
  const std::vector<std::string> lines_ = Goldens()["lines"];
  const Tokenizer tokenizer_ = LoadGolden(GetParam());
};

TEST_P(TokenizerGoldens, EncodesAsTheLibraryDoes) {
  for (size_t i = 0; i < lines_.size(); ++i) {
    const auto encoding = tokenizer_.Encode(lines_[i]);
    ASSERT_TRUE(encoding.ok());
    EXPECT_EQ(Json(encoding->ids), golden()["ids"][i]) << i << ": " << lines_[i];
  }
}

TEST_P(TokenizerGoldens, EncodesPairsAsTheLibraryDoes) {
  for (size_t i = 0; i + 1 < lines_.size(); ++i) {
    const auto pair = tokenizer_.Encode(lines_[i], {.pair = lines_[i + 1]});
    ASSERT_TRUE(pair.ok());
    EXPECT_EQ(Json(pair->ids), golden()["pair_ids"][i]) << lines_[i];
    EXPECT_EQ(Json(pair->type_ids), golden()["pair_types"][i]) << lines_[i];
    const auto cut = tokenizer_.Encode(lines_[i], {.pair = lines_[i + 1], .max_length = 12});
    ASSERT_TRUE(cut.ok());
    EXPECT_EQ(Json(cut->ids), golden()["cut_to_12"][i]) << lines_[i];
  }
}

TEST_P(TokenizerGoldens, DecodesAsTheLibraryDoes) {
  for (size_t i = 0; i < lines_.size(); ++i) {
    const std::vector<int32_t> ids = golden()["ids"][i];
    EXPECT_EQ(Json(tokenizer_.Decode(ids)), golden()["decoded"][i]) << lines_[i];
    EXPECT_EQ(Json(tokenizer_.Decode(ids, SpecialTokens::kKeep)), golden()["decoded_whole"][i])
        << lines_[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerGoldens,
                         ::testing::Values("wordpiece", "wordpiece_cased", "gpt2", "llama3",
                                           "roberta", "steps"),
                         [](const auto& kind) { return kind.param; });

using TokenizerFiles = FolderTest;

// The ids of a line with each of its tokens.
std::vector<int32_t> Ids(const Tokenizer& tokenizer, std::string_view text) {
  auto encoding = tokenizer.Encode(text);
  EXPECT_TRUE(encoding.ok());
  return encoding->ids;
}

void ExpectSameIds(const Tokenizer& a, const Tokenizer& b) {
  EXPECT_EQ(a.vocab_size(), b.vocab_size());
  for (const std::string line : Goldens()["lines"]) EXPECT_EQ(Ids(a, line), Ids(b, line)) << line;
}

TEST_F(TokenizerFiles, ReadsTheVocabularyOfBert) {
  const Json json = Json::parse(std::ifstream(kData / "wordpiece.json"));
  std::vector<std::string> tokens(json["model"]["vocab"].size());
  for (const auto& [token, id] : json["model"]["vocab"].items()) tokens[id] = token;
  std::string text;
  for (const std::string& token : tokens) text += token + "\r\n";
  ASSERT_TRUE(WriteFile(folder_ / "vocab.txt", text).ok());
  const auto tokenizer = Tokenizer::Load(folder_);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  ExpectSameIds(*tokenizer, LoadGolden("wordpiece"));
  ASSERT_TRUE(WriteFile(folder_ / "tokenizer_config.json", R"({"do_lower_case": false})").ok());
  const auto cased = Tokenizer::Load(folder_ / "vocab.txt");
  ASSERT_TRUE(cased.ok());
  EXPECT_NE(Ids(*cased, "THE"), Ids(*tokenizer, "THE"));
}

TEST_F(TokenizerFiles, ReadsTheVocabularyAndMergesOfGpt2AndRoberta) {
  for (const std::string name : {"gpt2", "roberta"}) {
    const Json json = Json::parse(std::ifstream(kData / (name + ".json")));
    Json vocabulary = json["model"]["vocab"];
    for (const Json& token : json["added_tokens"]) {
      vocabulary[token["content"].get<std::string>()] = token["id"];
    }
    std::string merges = "#version: 0.2\n";
    for (const Json& merge : json["model"]["merges"]) {
      merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
    }
    ASSERT_TRUE(WriteFile(folder_ / "vocab.json", vocabulary.dump()).ok());
    ASSERT_TRUE(WriteFile(folder_ / "merges.txt", merges).ok());
    ASSERT_TRUE(WriteFile(folder_ / "tokenizer_config.json",
                          name == "roberta" ? R"({"add_prefix_space": true})" : "{}")
                    .ok());
    const auto tokenizer = Tokenizer::Load(folder_);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    ExpectSameIds(*tokenizer, LoadGolden(name));
  }
}

TEST_F(TokenizerFiles, SavesWhatItLoads) {
  for (const std::string name : {"wordpiece", "llama3"}) {
    const Tokenizer tokenizer = LoadGolden(name);
    ASSERT_TRUE(tokenizer.Save(folder_).ok());
    const auto again = Tokenizer::Load(folder_);
    ASSERT_TRUE(again.ok());
    ExpectSameIds(*again, tokenizer);
    EXPECT_EQ(again->special().bos, tokenizer.special().bos);
    EXPECT_EQ(again->special().mask, tokenizer.special().mask);
  }
}

TEST_F(TokenizerFiles, TellsWhichTokenPlaysWhichPart) {
  const Tokenizer bert = LoadGolden("wordpiece");
  EXPECT_EQ(bert.special().pad, bert.Id("[PAD]"));
  EXPECT_EQ(bert.special().mask, bert.Id("[MASK]"));
  EXPECT_EQ(bert.special().eos, std::nullopt);
  EXPECT_THAT(bert.AllSpecialIds(), ElementsAre(0, 1, 2, 3, 4));
  const Tokenizer gpt2 = LoadGolden("gpt2");
  EXPECT_EQ(gpt2.special().eos, gpt2.Id("<|endoftext|>"));
  EXPECT_EQ(gpt2.special().pad, std::nullopt);

  fs::copy_file(kData / "gpt2.json", folder_ / "tokenizer.json");
  ASSERT_TRUE(WriteFile(folder_ / "special_tokens_map.json",
                        R"({"pad_token": {"content": "<|endoftext|>"}, "mask_token": "!"})")
                  .ok());
  const auto told = Tokenizer::Load(folder_);
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(told->special().pad, gpt2.Id("<|endoftext|>"));
  EXPECT_EQ(told->special().mask, gpt2.Id("!"));
}

TEST_F(TokenizerFiles, SaysWhatIsMissing) {
  EXPECT_THAT(Tokenizer::Load(folder_).error().message, HasSubstr("no tokenizer here"));
  EXPECT_THAT(Tokenizer::Load(folder_ / "x").error().message, HasSubstr("no such file"));
  ASSERT_TRUE(WriteFile(folder_ / "tokenizer.model", "x").ok());
  EXPECT_THAT(Tokenizer::Load(folder_).error().message, HasSubstr("SentencePiece"));
  ASSERT_TRUE(WriteFile(folder_ / "vocab.txt", "[PAD]\n[UNK]\n").ok());
  EXPECT_THAT(Tokenizer::Load(folder_).error().message,
              HasSubstr("vocab.txt: lacks the token [CLS]"));
  ASSERT_TRUE(WriteFile(folder_ / "vocab.txt", "[PAD]\n\xFF\n").ok());
  EXPECT_THAT(Tokenizer::Load(folder_).error().message, HasSubstr("vocab.txt: line 2: not UTF-8"));
  fs::remove(folder_ / "vocab.txt");
  ASSERT_TRUE(WriteFile(folder_ / "vocab.json", R"({"a": 0, "b": 1, "ab": 2})").ok());
  ASSERT_TRUE(WriteFile(folder_ / "merges.txt", "#version\na b\nb  a\n").ok());
  EXPECT_THAT(Tokenizer::Load(folder_).error().message, HasSubstr("merges.txt: line 3:"));
  ASSERT_TRUE(WriteFile(folder_ / "merges.txt", "a b\nb a\n").ok());
  EXPECT_THAT(Tokenizer::Load(folder_).error().message,
              HasSubstr("merge 1 of \"b\" and \"a\": \"ba\" is no token"));
}

std::string Refusal(std::string_view json) {
  const auto tokenizer = Tokenizer::Parse(json, "t.json");
  return tokenizer.ok() ? "" : tokenizer.error().message;
}

// A whole tokenizer.json with `member` in it.
std::string With(std::string_view member) {
  return R"({"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1}}, )" +
         std::string(member) + "}";
}

TEST(Tokenizer, RefusesStepsItDoesNotKnow) {
  EXPECT_EQ(Refusal(With(R"("x": 1)")), "");
  EXPECT_THAT(Refusal(With(R"("pre_tokenizer": {"type": "Metaspace"})")),
              HasSubstr("t.json: pre_tokenizer \"Metaspace\" is none that Headroom reads"));
  EXPECT_THAT(
      Refusal(With(R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend"}]})")),
      HasSubstr("normalizer \"Prepend\""));
  EXPECT_THAT(Refusal(With(R"("decoder": {"type": "Metaspace"})")), HasSubstr("decoder"));
  EXPECT_THAT(Refusal(With(R"("post_processor": {"type": "X"})")), HasSubstr("post_processor"));
  EXPECT_THAT(Refusal(R"({"model": {"type": "Unigram", "vocab": []}})"),
              HasSubstr("model \"Unigram\""));
  EXPECT_THAT(
      Refusal(
          R"({"model": {"type": "BPE", "byte_fallback": true, "vocab": {"a": 0}, "merges": []}})"),
      HasSubstr("byte_fallback"));
}

TEST(Tokenizer, RefusesDamagedFiles) {
  EXPECT_THAT(Refusal("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal("{}"), HasSubstr("model is not an object"));
  EXPECT_THAT(Refusal(R"({"model": {"vocab": {"a": 0}}})"), HasSubstr("unk_token \"[UNK]\""));
  EXPECT_THAT(Refusal(R"({"model": {"vocab": {"[UNK]": 0, "a": -1}}})"),
              HasSubstr("has the id -1"));
  EXPECT_THAT(Refusal(R"({"model": {"vocab": {"[UNK]": 0, "a": 0}}})"),
              HasSubstr("share the id 0"));
  EXPECT_THAT(Refusal(R"({"model": {"vocab": {"[UNK]": 0, "a": 2000000000}}})"),
              HasSubstr("2000000000"));
  EXPECT_THAT(Refusal(With(R"("added_tokens": [{"content": "x"}])")), HasSubstr("has no id"));
  EXPECT_THAT(
      Refusal(With(
          R"("post_processor": {"type": "BertProcessing", "cls": ["x", 7], "sep": ["x", 0]})")),
      HasSubstr("post_processor.cls"));
  EXPECT_THAT(Refusal(With(R"("post_processor": {"type": "TemplateProcessing",
      "single": [{"Sequence": {"id": "B", "type_id": 0}}], "pair": []})")),
              HasSubstr("sequence \"B\""));
  EXPECT_THAT(Refusal(With(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}})")),
              HasSubstr("regular expression"));
}

TEST(Tokenizer, LeavesSpecialTokensOutWhenAsked) {
  const Tokenizer tokenizer = LoadGolden("wordpiece");
  const auto bare = tokenizer.Encode("the", {.add_special_tokens = false});
  ASSERT_TRUE(bare.ok());
  const std::vector<int32_t> whole = Ids(tokenizer, "the");
  EXPECT_EQ(bare->ids, std::vector<int32_t>(whole.begin() + 1, whole.end() - 1));
  const auto cut = tokenizer.Encode("the memory of a training run", {.max_length = 4});
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->ids.size(), 4u);
  EXPECT_EQ(cut->ids.back(), tokenizer.special().sep);
}

TEST(Tokenizer, ReadsBytesThatAreNoText) {
  const Tokenizer tokenizer = LoadGolden("gpt2");
  const std::vector<int32_t> ids = Ids(tokenizer, "a\xFF\xC3z");
  EXPECT_EQ(tokenizer.Decode(ids), "a\uFFFD\uFFFDz");
  EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{-1, 1 << 30}), "");
}

TEST(Tokenizer, CutsLongWordsInGoodTime) {
  const Tokenizer tokenizer = LoadGolden("gpt2");
  EXPECT_GT(Ids(tokenizer, std::string(300'000, 'e')).size(), 1000u);
}

}  // namespace
}  // namespace headroom::engine
