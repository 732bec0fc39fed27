// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "engine/data/dataset.h"
#include "engine/data/test_folder.h"
#include "engine/data/tokenizer.h"

namespace headroom::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Tokenizer LoadTokenizer(const std::string& name) {
  return *Tokenizer::Load(fs::path(HEADROOM_TEST_DATA) / "tokenizers" / (name + ".json"));
}

class DatasetFiles : public FolderTest {
 protected:
  fs::path Write(const std::string& name, std::string_view text) const {
    EXPECT_TRUE(WriteFile(folder_ / name, text).ok());
    return folder_ / name;
  }
  std::vector<int32_t> Ids(std::string_view text, EncodeOptions options = {}) const {
    return bert_.Encode(text, options)->ids;
  }
  Result<Dataset> Classes(std::string_view text, const std::vector<std::string>& names = {}) const {
    return LoadClassificationTsv(Write("c.tsv", text), bert_, 16, names);
  }
  Result<Dataset> Translations(std::string_view text, int64_t max_length = 16) const {
    return LoadTranslationTsv(Write("t.tsv", text), gpt2_, max_length, 0, 7);
  }
  Result<Dataset> Pretokenised(std::string_view text) const {
    return LoadPretokenised(Write("p.jsonl", text), 100);
  }

  const Tokenizer bert_ = LoadTokenizer("wordpiece");
  const Tokenizer gpt2_ = LoadTokenizer("gpt2");
};

TEST_F(DatasetFiles, ReadsClassesByName) {
  const auto dataset =
      Classes("\xEF\xBB\xBFsentence\tLabel\r\nthe memory\tgood\r\n\r\nthe batch\tbad\nrun\tgood");
  ASSERT_TRUE(dataset.ok()) << dataset.error().message;
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_THAT(dataset->label_names(), ElementsAre("good", "bad"));
  EXPECT_EQ((*dataset)[0].ids, Ids("the memory"));
  EXPECT_THAT((*dataset)[0].labels, ElementsAre(0));
  EXPECT_THAT((*dataset)[1].labels, ElementsAre(1));
  EXPECT_THAT((*dataset)[2].labels, ElementsAre(0));
  EXPECT_EQ(dataset->LargestLabel(), 1);
}

TEST_F(DatasetFiles, ReadsPairsAndClassNumbers) {
  const auto dataset = Classes("the memory\tthe batch\t3\nrun\tgrows\t0\n");
  ASSERT_TRUE(dataset.ok()) << dataset.error().message;
  EXPECT_THAT(dataset->label_names(), IsEmpty());
  EXPECT_EQ((*dataset)[0].ids, Ids("the memory", {.pair = "the batch"}));
  EXPECT_EQ((*dataset)[0].type_ids.back(), 1);
  EXPECT_THAT((*dataset)[0].labels, ElementsAre(3));
}

TEST_F(DatasetFiles, KeepsTheLabelsOfTheTrainingData) {
  const auto dataset = Classes("run\tbad\n", {"good", "bad"});
  ASSERT_TRUE(dataset.ok());
  EXPECT_THAT((*dataset)[0].labels, ElementsAre(1));
  EXPECT_THAT(Classes("run\tbad\nrun\tworse\n", {"good", "bad"}).error().message,
              HasSubstr("c.tsv: line 2: label \"worse\" is none of the 2"));
}

TEST_F(DatasetFiles, RefusesTablesThatDoNotFit) {
  EXPECT_THAT(Classes("run\n").error().message,
              HasSubstr("c.tsv: line 1: 1 column, where 2 or 3 are needed"));
  EXPECT_THAT(Classes("a\t1\nb\tc\t1\n").error().message,
              HasSubstr("c.tsv: line 2: 3 columns, where line 1 has 2"));
  EXPECT_THAT(Classes("a\t1\n\nb\tgood\n").error().message,
              HasSubstr("c.tsv: line 3: label \"good\" is no class number"));
  EXPECT_THAT(Classes("a\t4000000\n").error().message, HasSubstr("line 1: label"));
  EXPECT_THAT(Classes("").error().message, HasSubstr("c.tsv: holds no example"));
  EXPECT_THAT(Classes("sentence\tlabel\n").error().message, HasSubstr("holds no example"));
  EXPECT_THAT(LoadClassificationTsv(folder_ / "x", bert_, 16).error().message,
              HasSubstr("x: no such file"));
}

TEST_F(DatasetFiles, CutsTextsToTheirLength) {
  const auto dataset =
      Classes("the memory of a training run has six parts and one more, and many others too\t1\n");
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ((*dataset)[0].ids.size(), 16u);
  EXPECT_EQ((*dataset)[0].ids.back(), bert_.special().sep);
}

TEST_F(DatasetFiles, ShiftsTheTargetsOfTranslations) {
  const auto dataset = Translations("the run\tel niño\n");
  ASSERT_TRUE(dataset.ok()) << dataset.error().message;
  const Example& example = (*dataset)[0];
  std::vector<int32_t> source = gpt2_.Encode("the run")->ids;
  source.push_back(7);
  EXPECT_EQ(example.ids, source);
  const std::vector<int32_t> target = gpt2_.Encode("el niño")->ids;
  EXPECT_EQ(std::vector(example.labels.begin(), example.labels.end() - 1), target);
  EXPECT_EQ(example.labels.back(), 7);
  EXPECT_EQ(std::vector(example.decoder_ids.begin() + 1, example.decoder_ids.end()), target);
  EXPECT_EQ(example.decoder_ids[0], 0);
}

TEST_F(DatasetFiles, CutsTranslationsToTheirLength) {
  const auto dataset = Translations("one two three four\tone two three four\n", 5);
  ASSERT_TRUE(dataset.ok());
  const Example& example = (*dataset)[0];
  EXPECT_EQ(example.ids.size(), 5u);
  EXPECT_EQ(example.ids.back(), 7);
  EXPECT_EQ(example.labels.size(), 5u);
  EXPECT_EQ(example.labels.back(), 7);
  EXPECT_EQ(example.decoder_ids.size(), 5u);
}

TEST_F(DatasetFiles, RefusesTranslationsWithoutASide) {
  EXPECT_THAT(Translations("a\tb\na\t \n").error().message,
              HasSubstr("t.tsv: line 2: an empty target"));
  EXPECT_THAT(Translations("a\tb\tc\n").error().message,
              HasSubstr("line 1: 3 columns, where 2 are needed"));
}

TEST_F(DatasetFiles, CutsTextsIntoSequences) {
  const auto dataset = LoadText(Write("a.txt", "the run, the batch and the sequence"), gpt2_, 4);
  ASSERT_TRUE(dataset.ok()) << dataset.error().message;
  std::vector<int32_t> all;
  for (int64_t i = 0; i < dataset->size(); ++i) {
    const Example& example = (*dataset)[i];
    EXPECT_TRUE(i + 1 == dataset->size() || example.ids.size() == 4);
    EXPECT_EQ(example.labels, example.ids);
    all.insert(all.end(), example.ids.begin(), example.ids.end());
  }
  std::vector<int32_t> expected = gpt2_.Encode("the run, the batch and the sequence")->ids;
  expected.push_back(*gpt2_.special().eos);
  expected.resize(all.size());  // a last piece of one token is left out
  EXPECT_EQ(all, expected);
}

TEST_F(DatasetFiles, ReadsAFolderOfTexts) {
  Write("b.txt", "two");
  Write("a.txt", "one");
  Write("c.md", "three");
  const auto dataset = LoadText(folder_, gpt2_, 1000);
  ASSERT_TRUE(dataset.ok());
  ASSERT_EQ(dataset->size(), 1);
  EXPECT_EQ(gpt2_.Decode((*dataset)[0].ids, SpecialTokens::kKeep),
            "one<|endoftext|>two<|endoftext|>");
}

TEST_F(DatasetFiles, FramesSequencesOfMaskedModels) {
  const auto dataset =
      LoadText(Write("a.txt", "the run, the batch and the sequence"), bert_, 6, Task::kMaskedLm);
  ASSERT_TRUE(dataset.ok());
  for (int64_t i = 0; i < dataset->size(); ++i) {
    EXPECT_EQ((*dataset)[i].ids.front(), bert_.special().cls);
    EXPECT_EQ((*dataset)[i].ids.back(), bert_.special().sep);
    EXPECT_LE((*dataset)[i].ids.size(), 6u);
  }
}

TEST_F(DatasetFiles, CutsLargeTextsWhereTheirTokensDo) {
  std::string text;
  for (int i = 0; text.size() < 2'500'000; ++i) {
    text += "The run " + std::to_string(i) + " grows,  it's so\n";
    if (i % 7 == 0) text += "\n\n  ";
  }
  const auto dataset = LoadText(Write("a.txt", text), gpt2_, 1 << 30);
  ASSERT_TRUE(dataset.ok());
  std::vector<int32_t> whole = gpt2_.Encode(text)->ids;
  whole.push_back(*gpt2_.special().eos);
  EXPECT_EQ((*dataset)[0].ids, whole);
}

TEST_F(DatasetFiles, RefusesTextsThatHoldNone) {
  EXPECT_THAT(LoadText(Write("a.txt", ""), gpt2_, 4).error().message, HasSubstr("holds no text"));
  fs::remove(folder_ / "a.txt");
  EXPECT_THAT(LoadText(folder_, gpt2_, 4).error().message, HasSubstr("holds no .txt file"));
  EXPECT_THAT(LoadText(Write("a.txt", "x"), bert_, 2, Task::kMaskedLm).error().message,
              HasSubstr("no room between"));
}

TEST_F(DatasetFiles, ReadsTokensFromJsonLines) {
  const auto dataset = Pretokenised(
      R"({"input_ids": [5, 6, 0], "attention_mask": [1, 1, 0], "labels": [5, -100, -100]}
{"input_ids": [1], "labels": 4}

{"input_ids": [1, 2], "token_type_ids": [0, 1], "text": "ignored"}
{"input_ids": [1, 2, 3], "decoder_input_ids": [9, 8], "labels": [8, 7]})");
  ASSERT_TRUE(dataset.ok()) << dataset.error().message;
  ASSERT_EQ(dataset->size(), 4);
  EXPECT_EQ((*dataset)[0], (Example{.ids = {5, 6}, .labels = {5, -100}}));
  EXPECT_EQ((*dataset)[1], (Example{.ids = {1}, .labels = {4}}));
  EXPECT_EQ((*dataset)[2], (Example{.ids = {1, 2}, .type_ids = {0, 1}, .labels = {1, 2}}));
  EXPECT_EQ((*dataset)[3], (Example{.ids = {1, 2, 3}, .labels = {8, 7}, .decoder_ids = {9, 8}}));
}

TEST_F(DatasetFiles, RefusesTokensBeyondTheVocabulary) {
  EXPECT_THAT(Pretokenised("{\"input_ids\": [5]}\n\n{\"input_ids\": [7, 100]}\n").error().message,
              HasSubstr("p.jsonl: line 3: input_ids: 100 is beyond the vocabulary of 100 tokens"));
  EXPECT_THAT(Pretokenised(R"({"input_ids": [-1]})").error().message, HasSubstr("-1 is beyond"));
  EXPECT_THAT(Pretokenised(R"({"input_ids": [1], "labels": [100]})").error().message,
              HasSubstr("labels: 100 is beyond"));
}

TEST_F(DatasetFiles, RefusesDamagedJsonLines) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"{\"input_ids\": [5]}\n{", "p.jsonl: line 2: example: not valid JSON"},
      {R"({"input_ids": "5"})", "line 1: input_ids is no list"},
      {R"({"input_ids": [1.5]})", "1.5 is no whole number"},
      {R"({"input_ids": []})", "no input_ids"},
      {R"({"labels": 1})", "no input_ids"},
      {R"({"input_ids": [1, 2, 3], "labels": [1, 2]})", "labels has 2 numbers, where input_ids"},
      {R"({"input_ids": [1, 2], "labels": [-3, 1]})", "negative number"},
      {R"({"input_ids": [1, 2], "labels": -1})", "-1 is no class"},
      {R"({"input_ids": [1, 2], "attention_mask": [0, 1]})", "zeros before ones"},
      {R"({"input_ids": [1, 2], "attention_mask": [1]})", "attention_mask has 1 numbers"},
      {R"({"input_ids": [1, 2], "token_type_ids": [1]})", "token_type_ids has 1 numbers"},
      {"", "holds no example"},
  };
  for (const auto& [text, message] : cases) {
    const auto dataset = Pretokenised(text);
    ASSERT_FALSE(dataset.ok()) << text;
    EXPECT_THAT(dataset.error().message, HasSubstr(std::string(message)));
  }
}

std::string Refusal(const Example& example, const ModelLimits& limits) {
  const Status status = CheckExamples(Dataset({{.ids = {1}, .labels = {0}}, example}), limits);
  return status.ok() ? "" : status.error().message;
}

TEST(CheckExamples, TakesWhatTheModelTakes) {
  EXPECT_EQ(Refusal({.ids = {1, 2}, .type_ids = {0, 1}, .labels = {2}},
                    {.vocabulary = 3, .classes = 3, .types = 2, .sequence = 2}),
            "");
  EXPECT_EQ(Refusal({.ids = {1, 2}, .labels = {2, -100}}, {.task = Task::kCausalLm}), "");
}

TEST(CheckExamples, NamesTheFirstExampleThatDoesNotFit) {
  EXPECT_EQ(Refusal({.ids = {3}, .labels = {2}}, {.vocabulary = 3}),
            "example 2 of 2: token 3 is beyond the model's 3 tokens");
  EXPECT_EQ(Refusal({.ids = {2}, .labels = {5}}, {.classes = 2}),
            "example 2 of 2: label 5 is beyond the model's 2 classes");
  EXPECT_EQ(Refusal({.ids = {2}, .type_ids = {1}, .labels = {0}}, {.types = 1}),
            "example 2 of 2: type 1 is beyond the model's 1 types");
  EXPECT_EQ(Refusal({.ids = {2, 1}, .labels = {0}}, {.sequence = 1}),
            "example 2 of 2: 2 tokens, more than the 1 that are taken");
  EXPECT_EQ(Refusal({.ids = {2, 1}, .labels = {0}}, {.task = Task::kCausalLm}),
            "example 2 of 2: has 1 labels, where causal-lm needs 2");
  EXPECT_THAT(Refusal({.ids = {2, 1}, .labels = {0, 1}}, {}), HasSubstr("has 2 labels"));
  EXPECT_THAT(Refusal({.ids = {1}, .labels = {0}, .decoder_ids = {1}}, {}),
              HasSubstr("has a decoder input, which sequence-classification does not take"));
  EXPECT_FALSE(CheckExamples(Dataset(), {}).ok());
}

}  // namespace
}  // namespace headroom::engine
