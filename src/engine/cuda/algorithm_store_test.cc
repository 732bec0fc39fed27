// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/algorithm_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/file.h"

namespace headroom::engine::cuda {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;

const AlgorithmIdentity kH200 = {
    .gpu = "NVIDIA H200", .compute_capability = "9.0", .driver = 13000, .cublaslt = 130100};

GemmShape Shape(int64_t rows) {
  GemmShape shape{};
  shape[0] = rows;
  shape[22] = int64_t{1} << 40;
  return shape;
}

GemmAlgorithm Algorithm(uint8_t first, float milliseconds = 0.0123F) {
  GemmAlgorithm algorithm{.milliseconds = milliseconds};
  algorithm.bytes[0] = first;
  algorithm.bytes[63] = 0xa5;
  return algorithm;
}

AlgorithmStore StoreOf(std::initializer_list<std::pair<int64_t, uint8_t>> entries) {
  AlgorithmStore store(kH200);
  for (const auto& [rows, first] : entries) store.Add(Shape(rows), Algorithm(first));
  return store;
}

class AlgorithmStoreFile : public testing::Test {
 protected:
  AlgorithmStoreFile() {
    std::string name = (fs::temp_directory_path() / "headroom_algorithms_XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~AlgorithmStoreFile() override { fs::remove_all(root_); }

  fs::path root_;
};

TEST(AlgorithmStore, KeepsWhatItWrites) {
  AlgorithmStore store = StoreOf({{8, 1}, {16, 0xff}});
  store.Add(Shape(24), Algorithm(3, 0));
  store.Add(Shape(32), Algorithm(4, 1e-7F));
  for (const AlgorithmStore& each : {store, AlgorithmStore(kH200)}) {
    const Result<AlgorithmStore> read = AlgorithmStore::Parse(each.ToText(), "file");
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->identity(), kH200);
    EXPECT_EQ(read->algorithms(), each.algorithms());
  }
}

TEST(AlgorithmStore, WritesALineForEachAlgorithm) {
  AlgorithmStore store(kH200);
  store.Add(Shape(8), Algorithm(0x2a));
  const std::string text = store.ToText();
  EXPECT_THAT(text, HasSubstr("\"gpu\": \"NVIDIA H200\", \"compute_capability\": \"9.0\", "
                              "\"driver\": 13000, \"cublaslt\": 130100"));
  EXPECT_THAT(text, HasSubstr("\n  {\"shape\": [8,0,"));
  EXPECT_THAT(text, HasSubstr("\"algorithm\": \"2a00"));
  EXPECT_THAT(text, EndsWith("a5\", \"milliseconds\": 0.0123}]}\n"));
}

TEST(AlgorithmStore, KeepsTheFirstAlgorithmOfAShape) {
  AlgorithmStore store = StoreOf({{8, 1}});
  store.Merge(StoreOf({{8, 2}, {16, 3}}));
  EXPECT_EQ(*store.Find(Shape(8)), Algorithm(1));
  EXPECT_EQ(*store.Find(Shape(16)), Algorithm(3));
  EXPECT_EQ(store.Find(Shape(24)), nullptr);
}

TEST(AlgorithmStore, RefusesWhatIsNone) {
  const std::string text = StoreOf({{8, 1}}).ToText();
  constexpr std::pair<const char*, const char*> kDamages[] = {
      {"gemm_algorithms.1", "gemm_algorithms.2"},
      {"\"NVIDIA H200\"", "\"two\\nlines\""},
      {"\"NVIDIA H200\"", "7"},
      {"130100", "-1"},
      {"[8,", "[8.5,"},
      {"[8,", "["},
      {"[8,", "[-8,"},
      {"\"0100", "\"01"},
      {"\"0100", "\"0x00"},
      {"0.0123", "-1"},
      {"0.0123", "1e300"},
      {"0.0123", "null"},
      {"\"algorithms\": [", "\"algorithms\": [7,"},
  };
  for (const auto& [part, by] : kDamages) {
    std::string damaged = text;
    const size_t at = damaged.find(part);
    ASSERT_NE(at, std::string::npos) << part;
    damaged.replace(at, std::string(part).size(), by);
    const Result<AlgorithmStore> read = AlgorithmStore::Parse(damaged, "f.json");
    ASSERT_FALSE(read.ok()) << by;
    EXPECT_EQ(read.error().message, "f.json: no algorithms of matrix products of headroom") << by;
  }
  EXPECT_FALSE(AlgorithmStore::Parse(text.substr(0, text.size() / 2), "f.json").ok());
}

TEST(AlgorithmStore, NamesItsFileAfterTheIdentity) {
  EXPECT_EQ(StoreFile("/cache", kH200), "/cache/gemm-NVIDIA-H200-9.0-13000-130100.json");
  AlgorithmIdentity other = kH200;
  other.gpu = "../a b/c";
  EXPECT_EQ(StoreFile("/cache", other), "/cache/gemm-..-a-b-c-9.0-13000-130100.json");
  EXPECT_EQ(kH200.ToString(), "NVIDIA H200 (9.0), driver of CUDA 13.0, cuBLASLt 13.1.0");
}

// What was timed anew was not in the file when the run began, or was refused.
TEST_F(AlgorithmStoreFile, PutsChoicesBesideThoseOfOthersAndBeforeThem) {
  const fs::path folder = root_ / "cache" / "headroom";
  EXPECT_TRUE(ReadStore(folder, kH200).algorithms().empty());
  ASSERT_TRUE(AddToStore(folder, StoreOf({{8, 1}, {16, 2}})).ok());
  ASSERT_TRUE(AddToStore(folder, StoreOf({{8, 7}, {24, 3}})).ok());
  EXPECT_EQ(ReadStore(folder, kH200).algorithms(),
            StoreOf({{8, 7}, {16, 2}, {24, 3}}).algorithms());
}

TEST_F(AlgorithmStoreFile, BeginsAnewWhereTheFileIsDamagedOrForeign) {
  AlgorithmIdentity other = kH200;
  other.cublaslt = 130200;
  ASSERT_TRUE(AddToStore(root_, StoreOf({{8, 1}})).ok());
  EXPECT_TRUE(ReadStore(root_, other).algorithms().empty());
  fs::copy_file(StoreFile(root_, kH200), StoreFile(root_, other));
  EXPECT_TRUE(ReadStore(root_, other).algorithms().empty());
  ASSERT_TRUE(WriteFile(StoreFile(root_, kH200), "{\"schema\"").ok());
  EXPECT_TRUE(ReadStore(root_, kH200).algorithms().empty());
  ASSERT_TRUE(AddToStore(root_, StoreOf({{16, 2}})).ok());
  EXPECT_EQ(ReadStore(root_, kH200).algorithms(), StoreOf({{16, 2}}).algorithms());
}

TEST_F(AlgorithmStoreFile, SaysWhereItCannotBeWritten) {
  ASSERT_TRUE(WriteFile(root_ / "file", "").ok());
  EXPECT_FALSE(AddToStore(root_ / "file" / "headroom", StoreOf({{8, 1}})).ok());
  EXPECT_TRUE(ReadStore(root_ / "file" / "headroom", kH200).algorithms().empty());
}

}  // namespace
}  // namespace headroom::engine::cuda
