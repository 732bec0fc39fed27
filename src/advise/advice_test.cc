// SPDX-License-Identifier: Apache-2.0
#include "advise/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "advise/realise.h"

namespace headroom {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kSmallGpt2 =
    R"({"model_type": "gpt2", "n_layer": 4, "n_embd": 256, "n_head": 4, "vocab_size": 8000,
        "n_positions": 512})";

ModelConfig SmallGpt2() {
  Result<ModelConfig> config = ModelConfig::FromJson(kSmallGpt2, "test");
  EXPECT_TRUE(config.ok());
  return *std::move(config);
}

Variant Asked(int64_t batch, int64_t tokens) {
  Variant variant;
  variant.recipe.task = Task::kCausalLm;
  variant.recipe.per_device_train_batch_size = batch;
  variant.recipe.sequence_length = tokens;
  return variant;
}

// The prediction itself, without a bench.
bool Completes(const Variant& variant, Bytes memory) {
  Platform platform = MeasuredPlatform();
  platform.allocator = variant.allocator;
  const ModelConfig config = SmallGpt2();
  const Result<Prediction> free = Predict(config, variant.recipe, platform);
  EXPECT_TRUE(free.ok());
  platform.memory_limit = memory - free->ledger.context();
  const Result<Prediction> capped = Predict(config, variant.recipe, platform);
  return !capped->out_of_memory.has_value();
}

Advice AdviseSmall(const Variant& asked, Bytes memory) {
  const ModelConfig config = SmallGpt2();
  Workbench bench(config, MeasuredPlatform(), memory);
  Result<Advice> advice = Advise(bench, asked, {}, nullptr);
  EXPECT_TRUE(advice.ok()) << advice.error().message;
  return *std::move(advice);
}

TEST(Advice, FindsTheLargestBatchToTheSample) {
  const Bytes memory = MiB(3000);
  const Variant asked = Asked(8, 256);
  const Advice advice = AdviseSmall(asked, memory);
  EXPECT_TRUE(advice.asked.fits);
  ASSERT_TRUE(advice.batch && advice.batch->value);
  EXPECT_TRUE(Completes(Asked(*advice.batch->value, 256), memory));
  EXPECT_FALSE(Completes(Asked(*advice.batch->value + 1, 256), memory));
  EXPECT_TRUE(advice.together.empty());
  EXPECT_EQ(advice.Best(), nullptr);
}

TEST(Advice, EndsSequencesAtTheModelsPositions) {
  const Advice advice = AdviseSmall(Asked(1, 128), MiB(4000));
  ASSERT_TRUE(advice.sequence && advice.sequence->value);
  EXPECT_EQ(*advice.sequence->value, 512);
  EXPECT_FALSE(advice.sequence->limited_by_memory);
}

TEST(Advice, EveryChangeThatIsSaidToFitDoes) {
  const Bytes memory = MiB(2400);
  const Advice advice = AdviseSmall(Asked(32, 512), memory);
  EXPECT_FALSE(advice.asked.fits);
  ASSERT_NE(advice.Best(), nullptr);
  int fitting = 0;
  for (const auto* list : {&advice.alone, &advice.together}) {
    for (const Change& change : *list) {
      EXPECT_EQ(Completes(change.variant, memory), change.trial.fits) << change.parts[0];
      EXPECT_EQ(*change.trial.needed <= memory, change.trial.fits) << change.parts[0];
      fitting += change.trial.fits ? 1 : 0;
    }
  }
  EXPECT_GE(fitting, 1);
}

TEST(Advice, KeepsTheSamplesOfAStep) {
  const Advice advice = AdviseSmall(Asked(32, 512), MiB(2400));
  for (const Change& change : advice.together) {
    const Recipe& recipe = change.variant.recipe;
    EXPECT_EQ(recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps, 32);
  }
}

TEST(Advice, ListsTheCheapestFirst) {
  const Advice advice = AdviseSmall(Asked(32, 512), MiB(2400));
  for (const auto* list : {&advice.alone, &advice.together}) {
    for (size_t i = 1; i < list->size(); ++i) {
      EXPECT_LE((*list)[i - 1].effect, (*list)[i].effect);
      if ((*list)[i - 1].effect != (*list)[i].effect) continue;
      EXPECT_LE((*list)[i - 1].time_change, (*list)[i].time_change);
    }
  }
}

TEST(Advice, FindsWhatFitsOnlyWithEverything) {
  // Weights, gradients and moments of 10.4 M parameters alone are 160 MiB in float32.
  const Advice asked = AdviseSmall(Asked(64, 512), MiB(1000));
  EXPECT_FALSE(asked.asked.fits);
  const Change* best = asked.Best();
  ASSERT_NE(best, nullptr);
  EXPECT_TRUE(Completes(best->variant, MiB(1000)));
}

TEST(Advice, SaysThatNothingHelps) {
  const Advice advice = AdviseSmall(Asked(8, 256), MiB(780));
  EXPECT_FALSE(advice.asked.fits);
  EXPECT_EQ(advice.Best(), nullptr);
  ASSERT_TRUE(advice.batch);
  EXPECT_FALSE(advice.batch->value.has_value());
}

TEST(Advice, SaysWhyAChangeDoesNotHelp) {
  const Advice advice = AdviseSmall(Asked(32, 512), MiB(2400));
  bool accumulation = false;
  for (const WithoutHelp& without : advice.without_help) {
    EXPECT_FALSE(without.why.empty()) << without.name;
    accumulation |= without.name == "accumulation alone";
  }
  EXPECT_TRUE(accumulation);
}

TEST(Advice, FindsTheLargestRank) {
  Variant asked = Asked(8, 256);
  asked.recipe.lora = LoraConfig{};
  const Bytes memory = MiB(1900);
  const Advice advice = AdviseSmall(asked, memory);
  ASSERT_TRUE(advice.lora_rank && advice.lora_rank->value);
  EXPECT_LE(*advice.lora_rank->value, 256);
  asked.recipe.lora->r = *advice.lora_rank->value;
  EXPECT_TRUE(Completes(asked, memory));
  EXPECT_FALSE(AdviseSmall(Asked(8, 256), memory).lora_rank.has_value());
}

TEST(Advice, OffersAdaptersWhereTheModelIsTrained) {
  const auto offers_lora = [](const Variant& asked) {
    const Advice advice = AdviseSmall(asked, MiB(2400));
    bool offered = false;
    for (const Change& change : advice.alone) offered |= change.parts[0] == "LoRA";
    for (const WithoutHelp& without : advice.without_help) offered |= without.name == "LoRA";
    return offered;
  };
  EXPECT_TRUE(offers_lora(Asked(4, 128)));
  Variant adapted = Asked(4, 128);
  adapted.recipe.lora = LoraConfig{};
  EXPECT_FALSE(offers_lora(adapted));
}

TEST(Advice, ChangesOfAGenerationTrainNothing) {
  Variant asked = Asked(2, 64);
  asked.recipe.driver = Driver::kGenerate;
  const Advice advice = AdviseSmall(asked, MiB(2400));
  for (const Change& change : advice.alone) {
    EXPECT_EQ(change.variant.recipe.optim, asked.recipe.optim);
    EXPECT_FALSE(change.variant.recipe.gradient_checkpointing);
    EXPECT_FALSE(change.variant.recipe.lora.has_value());
    EXPECT_EQ(change.variant.recipe.gradient_accumulation_steps, 1);
  }
}

TEST(Advice, RefusesARecipeThatCannotRun) {
  const ModelConfig config = SmallGpt2();
  Workbench bench(config, MeasuredPlatform(), GiB(24));
  EXPECT_FALSE(Advise(bench, Asked(1, 4096), {}, nullptr).ok());
}

// A run is predicted once; that another allocator fares as a run of its own would is a replay.
TEST(Workbench, RepliesForAnotherAllocatorAsARunWould) {
  const ModelConfig config = SmallGpt2();
  int fitting = 0;
  for (int mib = 900; mib <= 2500; mib += 200) {
    Workbench shared(config, MeasuredPlatform(), MiB(mib));
    Workbench alone(config, MeasuredPlatform(), MiB(mib));
    Variant variant = Asked(4, 256);
    variant.recipe.gradient_accumulation_steps = 8;
    shared.Try(variant);
    const int played = shared.predictions();
    variant.allocator.backend = AllocatorOptions::Backend::kExpandableSegments;
    const Trial& replayed = shared.Try(variant);
    const Trial& predicted = alone.Try(variant);
    EXPECT_EQ(replayed.fits, predicted.fits) << mib;
    EXPECT_EQ(replayed.reserved, predicted.reserved) << mib;
    EXPECT_EQ(replayed.allocated, predicted.allocated) << mib;
    EXPECT_EQ(replayed.cost.seconds(), predicted.cost.seconds()) << mib;
    if (!replayed.fits) continue;
    ++fitting;
    EXPECT_EQ(shared.predictions(), played) << mib;
  }
  EXPECT_GE(fitting, 2);
}

// A run that is known to stand too high is not played; that must not change who fits.
TEST(Workbench, GivesUpOnlyWhereNothingFits) {
  const Result<ModelConfig> config = ModelConfig::FromJson(
      R"({"model_type": "gpt2", "n_layer": 6, "n_embd": 1024, "n_head": 16, "n_positions": 128})",
      "test");
  ASSERT_TRUE(config.ok());
  const Variant asked = Asked(4, 128);
  std::vector<Variant> others(3, Asked(1, 16));
  others[1].recipe.optim = Optim::kSgd;
  others[2].recipe.optim = Optim::kSgd;
  others[2].recipe.weights_dtype = DType::kBFloat16;
  int fitting = 0;
  for (int64_t size = 600; size <= 3600; size += 150) {
    Workbench informed(*config, MeasuredPlatform(), MiB(size));
    informed.Measure(asked);
    for (const Variant& other : others) {
      Workbench fresh(*config, MeasuredPlatform(), MiB(size));
      const bool fits = fresh.Try(other).fits;
      EXPECT_EQ(informed.Try(other).fits, fits) << size;
      fitting += fits ? 1 : 0;
    }
  }
  EXPECT_GT(fitting, 20);
  EXPECT_LT(fitting, 50);
}

TEST(Realise, WritesFlagsAndPython) {
  Variant variant = Asked(4, 512);
  variant.recipe.gradient_accumulation_steps = 8;
  variant.recipe.precision = Precision::kBf16;
  variant.recipe.gradient_checkpointing = true;
  variant.recipe.weights_dtype = DType::kBFloat16;
  variant.allocator.backend = AllocatorOptions::Backend::kExpandableSegments;
  const Realisation realised = Realise(variant, "");
  EXPECT_EQ(realised.flags,
            "--task causal-lm --batch 4 --seq 512 --dtype bfloat16 --accum 8 --bf16 --optim "
            "adamw_torch_fused --gradient-checkpointing --alloc-conf expandable_segments:True");
  EXPECT_THAT(realised.training_arguments, HasSubstr("bf16=True"));
  EXPECT_THAT(realised.training_arguments,
              HasSubstr("gradient_checkpointing_kwargs={\"use_reentrant\": False}"));
  EXPECT_EQ(realised.from_pretrained, "dtype=\"bfloat16\"");
  EXPECT_EQ(realised.environment, "PYTORCH_ALLOC_CONF=expandable_segments:True");
  EXPECT_EQ(realised.lora, "");
}

TEST(Realise, WritesAdapters) {
  Variant variant = Asked(4, 512);
  variant.recipe.lora = LoraConfig{};
  variant.recipe.lora->r = 16;
  variant.recipe.lora->lora_alpha = 32;
  variant.recipe.lora->lora_dropout = 0.05;
  variant.recipe.lora->target_modules = {"q_proj", "v_proj"};
  const Realisation realised = Realise(variant, "");
  EXPECT_THAT(realised.flags, HasSubstr("--lora --lora-r 16 --lora-alpha 32 --lora-dropout 0.05 "
                                        "--lora-target-modules q_proj,v_proj"));
  EXPECT_EQ(realised.lora,
            "LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules=[\"q_proj\", "
            "\"v_proj\"])");
}

TEST(Realise, WritesGenerationsAndQuantisedWeights) {
  Variant variant = Asked(1, 25);
  variant.recipe.driver = Driver::kGenerate;
  variant.recipe.generation.max_new_tokens = 60;
  variant.recipe.quantization.kind = Quantization::Kind::kNf4;
  variant.recipe.quantization.compute_dtype = DType::kBFloat16;
  const Realisation realised = Realise(variant, "");
  EXPECT_EQ(realised.flags,
            "--task causal-lm --batch 1 --seq 25 --dtype float32 --generate --max-new-tokens 60 "
            "--load-in-4bit --bnb-4bit-quant-type nf4 --bnb-4bit-compute-dtype bfloat16");
  EXPECT_EQ(realised.training_arguments, "");
}

}  // namespace
}  // namespace headroom
