// SPDX-License-Identifier: Apache-2.0
#include "model/training_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace headroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TrainingArgumentsReading Read(std::string_view text) {
  Result<TrainingArgumentsReading> reading = ReadTrainingArguments(text, "args.yaml");
  EXPECT_TRUE(reading.ok()) << reading.error().message;
  return *std::move(reading);
}

Recipe RecipeOf(std::string_view text) {
  Recipe recipe;
  Read(text).ApplyTo(recipe);
  return recipe;
}

std::string ErrorOf(std::string_view text) {
  const Result<TrainingArgumentsReading> reading = ReadTrainingArguments(text, "args.yaml");
  if (reading.ok()) return "accepted";
  EXPECT_THAT(reading.error().message, Not(HasSubstr("\n")));
  return reading.error().message;
}

TEST(TrainingArguments, ReadsYaml) {
  const Recipe recipe = RecipeOf(R"(
# a comment
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
bf16: true
optim: adamw_torch
gradient_checkpointing: yes
gradient_checkpointing_kwargs:
  use_reentrant: true
max_grad_norm: 0
max_length: 2048
)");
  EXPECT_EQ(recipe.per_device_train_batch_size, 4);
  EXPECT_EQ(recipe.gradient_accumulation_steps, 2);
  EXPECT_EQ(recipe.precision, Precision::kBf16);
  EXPECT_EQ(recipe.optim, Optim::kAdamWTorch);
  EXPECT_TRUE(recipe.gradient_checkpointing);
  EXPECT_TRUE(recipe.use_reentrant);
  EXPECT_EQ(recipe.max_grad_norm, 0);
  EXPECT_EQ(recipe.sequence_length, 2048);
}

TEST(TrainingArguments, ReadsJson) {
  const Recipe recipe = RecipeOf(R"( {"per_device_train_batch_size": 16, "fp16": true,
      "gradient_checkpointing_kwargs": {"use_reentrant": false}, "max_grad_norm": 0.5})");
  EXPECT_EQ(recipe.per_device_train_batch_size, 16);
  EXPECT_EQ(recipe.precision, Precision::kFp16);
  EXPECT_FALSE(recipe.use_reentrant);
  EXPECT_EQ(recipe.max_grad_norm, 0.5);
}

TEST(TrainingArguments, ChangesOnlyWhatIsInTheFile) {
  Recipe recipe;
  recipe.per_device_train_batch_size = 3;
  recipe.precision = Precision::kFp16;
  recipe.sequence_length = 77;
  Read("optim: sgd").ApplyTo(recipe);
  EXPECT_EQ(recipe.per_device_train_batch_size, 3);
  EXPECT_EQ(recipe.precision, Precision::kFp16);
  EXPECT_EQ(recipe.sequence_length, 77);
  EXPECT_EQ(recipe.optim, Optim::kSgd);
}

TEST(TrainingArguments, PrecisionFollowsThreeSwitches) {
  EXPECT_EQ(Read("tf32: true").precision, Precision::kTf32);
  EXPECT_EQ(Read("{\"tf32\": true, \"bf16\": true}").precision, Precision::kBf16);
  EXPECT_EQ(Read("bf16: false").precision, Precision::kFp32);
  EXPECT_EQ(Read("bf16: null").precision, std::nullopt);
  EXPECT_EQ(Read("seed: 1").precision, std::nullopt);
}

TEST(TrainingArguments, ListsKeysWithoutEffect) {
  const TrainingArgumentsReading reading = Read(R"({"seed": 1, "learning_rate": 5e-5,
      "eval_strategy": "steps", "report_to": ["tensorboard"], "overwrite_output_dir": true,
      "torch_compile": false, "gradient_checkpointing_kwargs": {"preserve_rng_state": true}})");
  EXPECT_THAT(
      reading.without_effect,
      ElementsAre("eval_strategy", "gradient_checkpointing_kwargs.preserve_rng_state",
                  "learning_rate", "overwrite_output_dir", "report_to", "seed", "torch_compile"));
  EXPECT_THAT(reading.warnings, IsEmpty());
}

TEST(TrainingArguments, SaysWhatIsNotModelled) {
  const TrainingArgumentsReading reading =
      Read("torch_compile: true\nauto_find_batch_size: true\nfsdp: full_shard\n");
  EXPECT_THAT(reading.warnings, ElementsAre(HasSubstr("auto_find_batch_size"), HasSubstr("fsdp"),
                                            HasSubstr("\"torch_compile\" is not modelled")));
}

TEST(TrainingArguments, NamesNearestKey) {
  EXPECT_EQ(ErrorOf("per_device_trian_batchsize: 4"),
            "args.yaml: TrainingArguments has no \"per_device_trian_batchsize\": did you mean "
            "\"per_device_train_batch_size\"?");
  EXPECT_THAT(ErrorOf("qqqqqqq: 4"), HasSubstr("remove it"));
  EXPECT_THAT(ErrorOf("evaluation_strategy: steps"), HasSubstr("use \"eval_strategy\""));
}

TEST(TrainingArguments, RefusesContradictions) {
  EXPECT_THAT(ErrorOf("bf16: true\nfp16: true"), HasSubstr("both true"));
  EXPECT_THAT(ErrorOf("max_length: 1\nmax_seq_length: 2"), HasSubstr("keep one"));
  EXPECT_EQ(Read("max_length: 2\nmax_seq_length: 2").sequence_length, 2);
}

TEST(TrainingArguments, RefusesValuesOutOfRange) {
  for (const std::string_view value :
       {"0", "-4", "2.5", "4.0", "\"4\"", "true", "1e3", "99999999999999999999", "[4]"}) {
    EXPECT_THAT(ErrorOf("per_device_train_batch_size: " + std::string(value)),
                HasSubstr("\"per_device_train_batch_size\" must be a whole number"))
        << value;
  }
  EXPECT_THAT(ErrorOf("gradient_accumulation_steps: 0"), HasSubstr("from 1"));
  EXPECT_THAT(ErrorOf("max_grad_norm: -1"), HasSubstr("from 0"));
  EXPECT_THAT(ErrorOf("max_grad_norm: .nan"), HasSubstr("from 0"));
  EXPECT_THAT(ErrorOf("max_grad_norm: null"), HasSubstr("from 0"));
  EXPECT_THAT(ErrorOf("{\"max_grad_norm\": 1e999}"), HasSubstr("too large"));
  EXPECT_THAT(ErrorOf("bf16: 1"), HasSubstr("true or false"));
  EXPECT_THAT(ErrorOf("bf16: 'true'"), HasSubstr("true or false"));
  EXPECT_THAT(ErrorOf("gradient_checkpointing_kwargs: [1]"), HasSubstr("an object"));
}

TEST(TrainingArguments, NullMeansNotGiven) {
  EXPECT_EQ(Read("{\"per_device_train_batch_size\": null}").per_device_train_batch_size,
            std::nullopt);
  EXPECT_EQ(Read("gradient_checkpointing_kwargs:").use_reentrant, std::nullopt);
}

TEST(TrainingArguments, KwargsMayBeAJsonString) {
  EXPECT_EQ(Read(R"({"gradient_checkpointing_kwargs": "{\"use_reentrant\": true}"})").use_reentrant,
            true);
  EXPECT_THAT(ErrorOf("gradient_checkpointing_kwargs: use_reentrant"), HasSubstr("not valid JSON"));
}

TEST(TrainingArguments, TellsUnknownFromUnmodelledOptimizers) {
  EXPECT_THAT(ErrorOf("optim: galore_adamw"), HasSubstr("is not modelled; those are adamw_torch"));
  EXPECT_THAT(ErrorOf("optim: adamw_troch"), HasSubstr("did you mean \"adamw_torch\"?"));
  EXPECT_THAT(ErrorOf("optim: 3"), HasSubstr("a name"));
}

TEST(TrainingArguments, RefusesWhatIsNeitherJsonNorYaml) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("neither"));
  EXPECT_THAT(ErrorOf("just words"), HasSubstr("neither"));
  EXPECT_THAT(ErrorOf("- a\n- b"), HasSubstr("neither"));
  EXPECT_THAT(ErrorOf("{\"bf16\": true,}"), HasSubstr("at column 15"));
  EXPECT_THAT(ErrorOf("bf16: true\n fp16: [1,\n"), HasSubstr("not valid YAML at line"));
  EXPECT_THAT(ErrorOf("a: 1\n---\nb: 2"), HasSubstr("more than one YAML document"));
  EXPECT_THAT(ErrorOf("? [a, b]\n: 1"), HasSubstr("no plain word"));
}

TEST(TrainingArguments, DoesNotFollowAliases) {
  EXPECT_THAT(ErrorOf("fsdp_config: &a {x: 1}\naccelerator_config: *a"),
              HasSubstr("an alias (*name), which is not read here: write the value out at line 2"));
  EXPECT_THAT(ErrorOf("a: &a [*a]"), HasSubstr("an alias"));
}

TEST(TrainingArguments, StopsDeepAndLargeFiles) {
  EXPECT_THAT(ErrorOf("a: " + std::string(100, '[') + std::string(100, ']')),
              HasSubstr("16 levels"));
  EXPECT_THAT(ErrorOf("a: " + std::string(100000, '[')), HasSubstr("args.yaml: "));
  std::string wide = "report_to: [";
  for (int i = 0; i < 30000; ++i) wide += "x,";
  EXPECT_THAT(ErrorOf(wide + "x]"), HasSubstr("more values"));
  EXPECT_THAT(ErrorOf(std::string(300000, ' ')), HasSubstr("256.0 KiB"));
}

TEST(TrainingArguments, AcceptsByteOrderMark) {
  EXPECT_EQ(Read("\xEF\xBB\xBF"
                 "bf16: true")
                .precision,
            Precision::kBf16);
  EXPECT_EQ(Read("\xEF\xBB\xBF{\"bf16\": true}").precision, Precision::kBf16);
}

TEST(TrainingArguments, LastOfTwoEqualKeysCounts) {
  for (const std::string_view text :
       {"bf16: true\nbf16: false", R"({"bf16": true, "bf16": false})"}) {
    const TrainingArgumentsReading reading = Read(text);
    EXPECT_EQ(reading.precision, Precision::kFp32);
    EXPECT_THAT(reading.warnings, ElementsAre(HasSubstr("stands twice")));
  }
}

}  // namespace
}  // namespace headroom
