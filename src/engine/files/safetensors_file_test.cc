// SPDX-License-Identifier: Apache-2.0
#include "engine/files/safetensors_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <limits>

#include "base/file.h"
#include "engine/data/test_folder.h"
#include "engine/files/convert.h"
#include "engine/half.h"
#include "model/safetensors.h"

namespace headroom::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using SafetensorsFile = FolderTest;
using AtomicFileTest = FolderTest;

const std::vector<SafetensorsWriter::Tensor> kTensors = {
    {"small", DType::kBFloat16, {3}},
    {"a \"quoted\"\nname", DType::kFloat32, {2, 2}},
    {"empty", DType::kFloat32, {0, 4}},
    {"scalar", DType::kInt64, {}},
};
const std::vector<float> kFloats = {1.0F, -2.5F, 3.25F, 1e-3F};
const std::vector<uint16_t> kHalves = {0x3f80, 0xc000, 0x0000};
const std::vector<int64_t> kScalar = {-7};

template <typename T>
std::span<const std::byte> BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

Status WriteAll(const fs::path& path) {
  HEADROOM_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, kTensors));
  HEADROOM_RETURN_IF_ERROR(writer.Write("scalar", BytesOf(kScalar)));
  HEADROOM_RETURN_IF_ERROR(writer.Write("small", BytesOf(kHalves)));
  HEADROOM_RETURN_IF_ERROR(writer.Write(kTensors[1].name, BytesOf(kFloats).first(4)));
  HEADROOM_RETURN_IF_ERROR(writer.Write(kTensors[1].name, BytesOf(kFloats).subspan(4), 4));
  return writer.Finish();
}

TEST_F(SafetensorsFile, ReadsWhatItWrote) {
  const fs::path path = folder_ / "model.safetensors";
  const Status written = WriteAll(path);
  ASSERT_TRUE(written.ok()) << written.error().message;
  const auto reader = SafetensorsReader::Open(folder_);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  EXPECT_THAT(reader->Names(), ElementsAre(kTensors[1].name, "empty", "scalar", "small"));
  const TensorEntry* const floats = reader->Find(kTensors[1].name);
  ASSERT_NE(floats, nullptr);
  EXPECT_EQ(floats->shape, (Shape{2, 2}));
  EXPECT_EQ(floats->dtype, DType::kFloat32);
  EXPECT_TRUE(std::ranges::equal(floats->bytes, BytesOf(kFloats)));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(floats->bytes.data()) % 4, 0u);
  EXPECT_TRUE(std::ranges::equal(reader->Find("scalar")->bytes, BytesOf(kScalar)));
  EXPECT_EQ(reader->Find("empty")->bytes.size(), 0u);
  EXPECT_EQ(reader->Find("absent"), nullptr);
  EXPECT_THAT(Files(), ElementsAre("model.safetensors"));
}

TEST_F(SafetensorsFile, ConvertsWhileReading) {
  ASSERT_TRUE(WriteAll(folder_ / "model.safetensors").ok());
  const auto reader = SafetensorsReader::Open(folder_ / "model.safetensors");
  ASSERT_TRUE(reader.ok());
  std::vector<float> values(3);
  ASSERT_TRUE(
      reader->Read("small", DType::kFloat32, std::as_writable_bytes(std::span(values))).ok());
  EXPECT_THAT(values, ElementsAre(1.0F, -2.0F, 0.0F));
  std::vector<uint16_t> halves(4);
  ASSERT_TRUE(
      reader->Read(kTensors[1].name, DType::kFloat16, std::as_writable_bytes(std::span(halves)))
          .ok());
  EXPECT_THAT(halves, ElementsAre(0x3c00, 0xc100, 0x4280, Float16Bits(1e-3F)));
}

TEST_F(SafetensorsFile, RefusesWhatItCannotRead) {
  ASSERT_TRUE(WriteAll(folder_ / "model.safetensors").ok());
  const auto reader = SafetensorsReader::Open(folder_);
  ASSERT_TRUE(reader.ok());
  std::vector<std::byte> bytes(4);
  EXPECT_THAT(reader->Read("absent", DType::kFloat32, bytes).error().message,
              HasSubstr("has no tensor \"absent\""));
  EXPECT_THAT(reader->Read("scalar", DType::kFloat32, bytes).error().message,
              HasSubstr("is I64, which does not convert to float32"));
}

TEST_F(SafetensorsFile, NamesWhatIsMissing) {
  EXPECT_THAT(SafetensorsReader::Open(folder_).error().message, HasSubstr("no weights here"));
  EXPECT_THAT(SafetensorsReader::Open(folder_ / "x.safetensors").error().message,
              HasSubstr("x.safetensors: No such file"));
  ASSERT_TRUE(WriteFile(folder_ / "x.safetensors", "").ok());
  EXPECT_THAT(SafetensorsReader::Open(folder_ / "x.safetensors").error().message,
              HasSubstr("0 bytes, too few for a header"));
}

// Two shards of one tensor each, and their index.
void WriteShards(const fs::path& folder, const std::string& first, const std::string& second) {
  const std::string shards[] = {"model-00001-of-00002.safetensors",
                                "model-00002-of-00002.safetensors"};
  const std::string names[] = {first, second};
  for (size_t i = 0; i < 2; ++i) {
    const std::vector<SafetensorsWriter::Tensor> tensors = {{names[i], DType::kFloat32, {4}}};
    auto writer = SafetensorsWriter::Create(folder / shards[i], tensors);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->Write(names[i], BytesOf(kFloats)).ok());
    ASSERT_TRUE(writer->Finish().ok());
  }
  ASSERT_TRUE(WriteFile(folder / "model.safetensors.index.json",
                        R"({"metadata":{"total_size":32},"weight_map":{"a":")" + shards[0] +
                            R"(","b":")" + shards[1] + R"("}})")
                  .ok());
}

TEST_F(SafetensorsFile, ReadsShards) {
  WriteShards(folder_, "a", "b");
  const auto reader = SafetensorsReader::Open(folder_);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  EXPECT_THAT(reader->Names(), ElementsAre("a", "b"));
  EXPECT_EQ(reader->Find("b")->bytes.size(), 16u);
}

TEST_F(SafetensorsFile, RefusesMissingShardsAndTensorsInTwo) {
  WriteShards(folder_, "a", "a");
  EXPECT_THAT(SafetensorsReader::Open(folder_).error().message,
              HasSubstr("stands in another shard too"));
  fs::remove(folder_ / "model-00002-of-00002.safetensors");
  EXPECT_THAT(SafetensorsReader::Open(folder_).error().message,
              HasSubstr("model-00002-of-00002.safetensors: No such file"));
}

// While it lives, a file ends at `bytes`, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_F(SafetensorsFile, LeavesTheOldFileWhenTheDiskIsFull) {
  const fs::path path = folder_ / "model.safetensors";
  ASSERT_TRUE(WriteAll(path).ok());
  const std::string before = *ReadFile(path);
  for (const rlim_t room : {rlim_t{0}, rlim_t{5}, rlim_t{200}, rlim_t{before.size() - 1}}) {
    const Status failed = [&] {
      const FullDisk disk(room);
      return WriteAll(path);
    }();
    ASSERT_FALSE(failed.ok()) << room;
    EXPECT_EQ(failed.error().code, ErrorCode::kInternal);
    EXPECT_THAT(failed.error().message, HasSubstr("the file of before is intact"));
    EXPECT_EQ(*ReadFile(path), before);
    EXPECT_THAT(Files(), ElementsAre("model.safetensors"));
  }
}

TEST_F(SafetensorsFile, WritesAHeaderThatOthersRead) {
  const fs::path path = folder_ / "model.safetensors";
  ASSERT_TRUE(WriteAll(path).ok());
  const std::string file = *ReadFile(path);
  EXPECT_THAT(file, HasSubstr(R"("__metadata__":{"format":"pt"})"));
  const auto tensors =
      ParseSafetensorsHeader(file, static_cast<int64_t>(file.size()), "model.safetensors");
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  // Wider elements first; what is equally wide in the order given.
  EXPECT_EQ((*tensors)[0].name, "scalar");
  EXPECT_EQ(tensors->back().name, "small");
}

TEST_F(AtomicFileTest, AppearsWhenCommitted) {
  const fs::path path = folder_ / "config.json";
  {
    auto file = AtomicFile::Create(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Write(BytesOf(kHalves), 0).ok());
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_THAT(Files(), ElementsAre());
  ASSERT_TRUE(WriteFileAtomically(path, "{}").ok());
  EXPECT_EQ(*ReadFile(path), "{}");
  EXPECT_THAT(Files(), ElementsAre("config.json"));
}

TEST_F(AtomicFileTest, NamesTheFileThatCannotBeWritten) {
  const Status failed = WriteFileAtomically(folder_ / "absent" / "x", "text");
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(failed.error().message, HasSubstr("absent/x: cannot be written: No such file"));
}

TEST(Convert, RoundsBetweenAllFloatingTypes) {
  const float values[] = {0.0F,     -0.0F, 1.0F,    1.0F / 3,
                          65504.0F, 1e30F, -1e-30F, std::numeric_limits<float>::infinity()};
  for (const DType to : {DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    for (const float value : values) {
      std::byte middle[8];
      const std::span there(middle, static_cast<size_t>(ElementSize(to)));
      Convert(std::as_bytes(std::span(&value, 1)), DType::kFloat32, there, to);
      float back = 0;
      Convert(there, to, std::as_writable_bytes(std::span(&back, 1)), DType::kFloat32);
      const float expected = to == DType::kFloat16    ? FromFloat16(Float16Bits(value))
                             : to == DType::kBFloat16 ? FromBFloat16(BFloat16Bits(value))
                                                      : value;
      EXPECT_EQ(std::memcmp(&back, &expected, sizeof(float)), 0) << value;
    }
  }
}

TEST(Convert, KnowsWhatItCannotDo) {
  EXPECT_TRUE(Converts(DType::kInt64, DType::kInt64));
  EXPECT_TRUE(Converts(DType::kBFloat16, DType::kFloat16));
  EXPECT_FALSE(Converts(DType::kInt64, DType::kFloat32));
  EXPECT_FALSE(Converts(DType::kFloat32, DType::kUInt8));
}

}  // namespace
}  // namespace headroom::engine
