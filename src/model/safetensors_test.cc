// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace headroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file's first bytes: the length and the header.
std::string Start(std::string_view header) {
  std::string start;
  for (int i = 0; i < 8; ++i) {
    start += static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i) & 0xff);
  }
  return start + std::string(header);
}

Result<std::vector<StoredTensor>> Parse(std::string_view header, int64_t data) {
  const std::string start = Start(header);
  return ParseSafetensorsHeader(start, static_cast<int64_t>(start.size()) + data, "model");
}

// The message of the refusal; empty when there is none.
std::string Refusal(std::string_view header, int64_t data) {
  const auto tensors = Parse(header, data);
  return tensors.ok() ? "" : tensors.error().message;
}

constexpr std::string_view kTwo = R"({"__metadata__":{"format":"pt"},)"
                                  R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                                  R"("b":{"dtype":"BF16","shape":[5],"data_offsets":[24,34]}}  )";

TEST(Safetensors, ReadsAHeader) {
  const auto tensors = Parse(kTwo, 34);
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_THAT((*tensors)[0].shape, ElementsAre(2, 3));
  EXPECT_EQ((*tensors)[0].bytes(), Bytes(24));
  EXPECT_EQ((*tensors)[1].dtype, "BF16");
  EXPECT_EQ((*tensors)[1].elements(), 5);
}

TEST(Safetensors, TakesTensorsInAnyOrderOfTheHeader) {
  EXPECT_EQ(Refusal(R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]},)"
                    R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})",
                    5),
            "");
}

TEST(Safetensors, TakesEmptyTensorsAndScalars) {
  EXPECT_EQ(Refusal(R"({"e":{"dtype":"F32","shape":[0,8],"data_offsets":[0,0]},)"
                    R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
                    4),
            "");
  EXPECT_EQ(Refusal("{}", 0), "");
}

TEST(Safetensors, RefusesALengthBeyondTheFile) {
  std::string start = Start("{}");
  start[7] = '\x7f';
  const auto tensors = ParseSafetensorsHeader(start, 10, "model");
  ASSERT_FALSE(tensors.ok());
  EXPECT_THAT(tensors.error().message, HasSubstr("in a file of 10 at byte 0"));
}

TEST(Safetensors, RefusesATruncatedFile) {
  EXPECT_THAT(Refusal(kTwo, 33), HasSubstr("tensor \"b\" ends at 34 of the 33 bytes"));
  EXPECT_FALSE(ParseSafetensorsHeader("abc", 3, "model").ok());
  EXPECT_FALSE(ParseSafetensorsHeader("", 0, "model").ok());
}

TEST(Safetensors, RefusesOverlapsAndHoles) {
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                      R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
                      7),
              HasSubstr("tensor \"b\" overlaps the one before at byte 61"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5),
              HasSubstr("tensor \"a\" leaves a hole before it at byte 9"));
  EXPECT_THAT(Refusal(kTwo, 40), HasSubstr("6 bytes that belong to no tensor"));
}

TEST(Safetensors, RefusesNamesThatStandTwice) {
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                      2),
              HasSubstr("tensor \"a\" stands twice at byte 61"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("\"dtype\" stands twice at byte 27"));
}

TEST(Safetensors, FindsTheStartOfNamesWithQuotesInThem) {
  EXPECT_THAT(Refusal(R"({"q\"\\":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("q\"\\":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                      2),
              HasSubstr("stands twice at byte 65"));
}

TEST(Safetensors, RefusesWhatDoesNotAddUp) {
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,13]}})", 13),
              HasSubstr("has 13 bytes, which is not what its shape and F32 need"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],)"
                      R"("data_offsets":[0,0]}})",
                      0),
              HasSubstr("tensor \"a\""));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4),
              HasSubstr("ends before it begins"));
}

TEST(Safetensors, RefusesWhatIsNoTableOfTensors) {
  for (const std::string_view header :
       {"", "[]", "{\"a\":1}", "{\"a\":[1]}", "{\"a\":null}", "{\"a\":{}}", "{",
        "{\"a\":{\"dtype\":\"F32\"", R"({"a":{"dtype":"F99","shape":[],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})",
        R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} x)",
        R"({"__metadata__":{"n":1}})", R"({"__metadata__":"pt"})"}) {
    EXPECT_THAT(Refusal(header, 4), HasSubstr("at byte ")) << header;
  }
}

TEST(Safetensors, RefusesDeepNesting) {
  EXPECT_THAT(Refusal("{\"a\":" + std::string(100'000, '['), 4), HasSubstr("nested too deeply"));
}

TEST(SafetensorsIndex, NamesTheShardsOnce) {
  const auto index = ParseSafetensorsIndex(
      R"({"metadata":{"total_size":48},"weight_map":{"a":"2.safetensors","b":"1.safetensors",)"
      R"("c":"2.safetensors"}})",
      "index");
  ASSERT_TRUE(index.ok()) << index.error().message;
  EXPECT_EQ(index->total_size, 48);
  EXPECT_EQ(index->tensors, 3u);
  EXPECT_THAT(index->files, ElementsAre("1.safetensors", "2.safetensors"));
}

TEST(SafetensorsIndex, RefusesWhatIsNone) {
  for (const std::string_view text :
       {"", "[]", "{}", R"({"weight_map":{}})", R"({"weight_map":{"a":1}})",
        R"({"weight_map":{"a":"../secret"}})", R"({"weight_map":{"a":"s","a":"s"}})"}) {
    EXPECT_FALSE(ParseSafetensorsIndex(text, "index").ok()) << text;
  }
}

class StoredWeightsFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("safetensors_" +
               std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  std::filesystem::path folder_;
};

TEST_F(StoredWeightsFolder, ReadsAFile) {
  Write("model.safetensors", Start(kTwo) + std::string(34, 'x'));
  const auto weights = ReadStoredWeights(folder_);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  ASSERT_TRUE(weights->has_value());
  EXPECT_EQ((*weights)->total, Bytes(34));
  EXPECT_EQ((*weights)->tensors.size(), 2u);
}

TEST_F(StoredWeightsFolder, ReadsAllShardsOrTheSumOfTheIndex) {
  Write("model.safetensors.index.json",
        R"({"metadata":{"total_size":68},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  const auto alone = ReadStoredWeights(folder_);
  ASSERT_TRUE(alone.ok() && alone->has_value());
  EXPECT_EQ((*alone)->total, Bytes(68));
  EXPECT_TRUE((*alone)->tensors.empty());

  Write("1.safetensors", Start(kTwo) + std::string(34, 'x'));
  const auto some = ReadStoredWeights(folder_);
  ASSERT_FALSE(some.ok());
  EXPECT_THAT(some.error().message, HasSubstr("1 of its 2 shards are missing"));

  Write("2.safetensors", Start(kTwo) + std::string(34, 'x'));
  const auto all = ReadStoredWeights(folder_);
  ASSERT_TRUE(all.ok() && all->has_value());
  EXPECT_EQ((*all)->tensors.size(), 4u);
}

TEST_F(StoredWeightsFolder, IsNullWithoutWeights) {
  const auto weights = ReadStoredWeights(folder_);
  ASSERT_TRUE(weights.ok());
  EXPECT_FALSE(weights->has_value());
}

}  // namespace
}  // namespace headroom
