// SPDX-License-Identifier: Apache-2.0
#include "observe/training_args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "observe/zip_member.h"

namespace headroom::observe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Content(const std::string& name) {
  std::ifstream in(std::string(HEADROOM_TEST_DATA) + "/training_args/" + name, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

bool All(std::string_view) { return true; }

std::string Failure(const std::string& bytes) {
  const Result<std::string> json = TrainingArgumentsJson(bytes, &All);
  return json.ok() ? "" : json.error().message;
}

TEST(TrainingArgs, ReadsPlainValuesAndEnumsAndLeavesObjectsOut) {
  const std::string json = TrainingArgumentsJson(Content("training_args.bin"), &All).value();
  EXPECT_THAT(json, HasSubstr("\"per_device_train_batch_size\": 4"));
  EXPECT_THAT(json, HasSubstr("\"bf16\": true"));
  EXPECT_THAT(json, HasSubstr("\"tf32\": null"));
  EXPECT_THAT(json, HasSubstr("\"optim\": \"adafactor\""));
  EXPECT_THAT(json, HasSubstr("\"eval_strategy\": \"no\""));
  EXPECT_THAT(json, HasSubstr("\"gradient_checkpointing_kwargs\": {\"use_reentrant\": true}"));
  EXPECT_THAT(json, HasSubstr("\"max_grad_norm\": 5.000000e-01"));
  EXPECT_THAT(json, HasSubstr("\"fsdp\": []"));
  EXPECT_THAT(json, Not(HasSubstr("distributed_state")));
}

TEST(TrainingArgs, GivesOnlyWhatIsWanted) {
  const std::string json =
      TrainingArgumentsJson(Content("training_args.bin"), [](std::string_view name) {
        return name == "fp16";
      }).value();
  EXPECT_EQ(json, "{\"fp16\": false}");
}

TEST(TrainingArgs, NamesWhatAHostileFileWouldCallAndDoesNotCallIt) {
  EXPECT_THAT(Failure(Content("hostile.bin")), HasSubstr("posix.system"));
  EXPECT_THAT(Failure(Content("weights.bin")), HasSubstr("a dict, no TrainingArguments"));
}

TEST(TrainingArgs, RefusesEveryTruncation) {
  const std::string whole = Content("training_args.bin");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(Failure(whole.substr(0, size)), "") << size;
  }
}

TEST(TrainingArgs, SurvivesEveryFlippedByte) {
  const std::string whole = Content("training_args.bin");
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    (void)TrainingArgumentsJson(damaged, &All);
  }
}

TEST(ZipMember, RefusesWhatIsNoArchive) {
  EXPECT_FALSE(ReadZipMember("", "x", MiB(1)).ok());
  EXPECT_FALSE(ReadZipMember("PK\x03\x04", "x", MiB(1)).ok());
  EXPECT_FALSE(ReadZipMember(Content("training_args.bin"), "missing", MiB(1)).ok());
  EXPECT_FALSE(ReadZipMember(Content("training_args.bin"), "data.pkl", Bytes(10)).ok());
  EXPECT_EQ(ReadZipMember(Content("training_args.bin"), "version", MiB(1)).value(), "3\n");
}

}  // namespace
}  // namespace headroom::observe
