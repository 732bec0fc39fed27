// SPDX-License-Identifier: Apache-2.0
#include "engine/trainer.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <fstream>
#include <numeric>

#include "engine/budget.h"
#include "engine/lazy_device.h"
#include "engine/tiny_models.h"
#include "engine/tiny_training.h"

namespace headroom::engine {
namespace {

namespace fs = std::filesystem;

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() {
    std::string name = (fs::temp_directory_path() / "headroom_trainer_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~TrainerTest() override { fs::remove_all(folder_); }

  fs::path folder_;
};

std::string Contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Stopped after three steps and resumed, a run ends in the weights of one that was not.
TEST_F(TrainerTest, ResumesToTheBit) {
  for (const TinyModel& model : TinyModels()) {
    for (const auto& [precision, lean] :
         {std::pair{Precision::kFp32, false}, std::pair{Precision::kBf16, false},
          std::pair{Precision::kBf16, true}, std::pair{Precision::kFp16, false}}) {
      SCOPED_TRACE(model.name + " " + std::string(Name(precision)) + (lean ? " lean" : ""));
      TrainOptions options = OptionsFor(model);
      options.precision = precision;
      options.lean = lean;
      options.optimizer.eight_bit = precision == Precision::kBf16;
      options.output_dir = folder_ / "straight";
      const Outcome straight = TrainOn(model, options, {});
      options.output_dir = folder_ / "stopped";
      const Outcome stopped = TrainOn(model, options, {}, 3);
      EXPECT_TRUE(stopped.result.interrupted);
      EXPECT_EQ(stopped.result.saved, options.output_dir / "checkpoint-3");
      const Outcome resumed = TrainOn(model, options, {.checkpoint = stopped.result.saved});
      EXPECT_EQ(resumed.result.steps, 8);
      EXPECT_TRUE(std::equal(resumed.losses.begin(), resumed.losses.end(),
                             straight.losses.begin() + 3, straight.losses.end()));
      EXPECT_EQ(Contents(folder_ / "straight" / "model.safetensors"),
                Contents(folder_ / "stopped" / "model.safetensors"));
      EXPECT_EQ(straight.result.evaluation->loss, resumed.result.evaluation->loss);
      fs::remove_all(folder_ / "straight");
      fs::remove_all(folder_ / "stopped");
    }
  }
}

TEST_F(TrainerTest, TrainsOnADeviceAsOnTheCpu) {
  for (const char* name : {"bert classifier", "gpt2", "bart"}) {
    SCOPED_TRACE(name);
    const TinyModel model = TinyModelOf(name);
    TrainOptions options = OptionsFor(model);
    options.precision = Precision::kBf16;
    options.output_dir = folder_ / "cpu";
    const Outcome cpu = TrainOn(model, options, {});
    LazyDevice device("host");
    options.output_dir = folder_ / "device";
    const Outcome on_device = TrainOn(model, options, {.device = &device});
    EXPECT_EQ(on_device.losses, cpu.losses);
    EXPECT_EQ(on_device.result.evaluation->loss, cpu.result.evaluation->loss);
    EXPECT_EQ(Contents(folder_ / "device" / "model.safetensors"),
              Contents(folder_ / "cpu" / "model.safetensors"));
    EXPECT_FALSE(fs::exists(cpu.result.saved / "gemm_algorithms.json"));
  }
}

// A run that resumes multiplies as the one before did, whatever its device would have chosen.
TEST_F(TrainerTest, ResumesWithTheAlgorithmsOfItsDevice) {
  const TinyModel model = TinyModelOf("gpt2");
  TrainOptions options = OptionsFor(model);
  options.output_dir = folder_;
  LazyDevice first("card A");
  first.set_algorithms("card A: split by 3");
  const Outcome stopped = TrainOn(model, options, {.device = &first}, 3);
  EXPECT_EQ(Contents(stopped.result.saved / "gemm_algorithms.json"), "card A: split by 3");
  LazyDevice second("card A");
  const Outcome resumed =
      TrainOn(model, options, {.checkpoint = stopped.result.saved, .device = &second}, 2);
  EXPECT_EQ(second.Algorithms(), "card A: split by 3");
  EXPECT_FALSE(resumed.other_algorithms);
  EXPECT_EQ(Contents(resumed.result.saved / "gemm_algorithms.json"), "card A: split by 3");
}

TEST_F(TrainerTest, SaysWhereItResumesWithOtherAlgorithms) {
  const TinyModel model = TinyModelOf("gpt2");
  TrainOptions options = OptionsFor(model);
  options.output_dir = folder_;
  LazyDevice first("card A");
  const Outcome stopped = TrainOn(model, options, {.device = &first}, 3);
  const std::string file = (stopped.result.saved / "gemm_algorithms.json").string();
  LazyDevice other("card B");
  const Trainer::Origin elsewhere{.checkpoint = stopped.result.saved, .device = &other};
  EXPECT_EQ(TrainOn(model, options, elsewhere).other_algorithms,
            file +
                ": not used: they are of \"card A: tuned\", and this is card B; results will "
                "differ in their last bits");
  EXPECT_EQ(other.Algorithms(), "card B: tuned");
  EXPECT_EQ(TrainOn(model, options, {.checkpoint = stopped.result.saved}).other_algorithms,
            file +
                ": not used: they are of a GPU, and this is the CPU; results will differ in "
                "their last bits");
}

TEST_F(TrainerTest, RefusesToResumeBeyondItsData) {
  const TinyModel model = TinyModelOf("gpt2");
  TrainOptions options = OptionsFor(model);
  options.output_dir = folder_;
  const Outcome stopped = TrainOn(model, options, {}, 2);
  Result<Trainer> trainer = Trainer::Create(ConfigOf(model), options, DataFor(model, 8));
  ASSERT_TRUE(trainer.ok());
  const Status status = trainer->Start({.checkpoint = stopped.result.saved});
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("stands at batch 4 of its epoch, and this data makes 2"),
            std::string::npos)
      << status.error().message;
}

TEST_F(TrainerTest, RefusesToResumeAnotherRecipe) {
  const TinyModel model = TinyModelOf("gpt2");
  TrainOptions options = OptionsFor(model);
  options.output_dir = folder_;
  const Outcome stopped = TrainOn(model, options, {}, 2);
  options.learning_rate = 2e-3;
  Result<Trainer> trainer = Trainer::Create(ConfigOf(model), options, DataFor(model));
  ASSERT_TRUE(trainer.ok());
  const Status status = trainer->Start({.checkpoint = stopped.result.saved});
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("learning_rate was 0.001 and is 0.002"), std::string::npos)
      << status.error().message;
}

TEST_F(TrainerTest, RefusesToResumeWithAnotherRounding) {
  const TinyModel model = TinyModelOf("gpt2");
  TrainOptions options = OptionsFor(model);
  options.precision = Precision::kBf16;
  options.lean = true;
  options.output_dir = folder_;
  const Outcome stopped = TrainOn(model, options, {}, 2);
  options.optimizer.stochastic_rounding = false;
  Result<Trainer> trainer = Trainer::Create(ConfigOf(model), options, DataFor(model));
  ASSERT_TRUE(trainer.ok());
  const Status status = trainer->Start({.checkpoint = stopped.result.saved});
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("stochastic_rounding was true and is false"),
            std::string::npos)
      << status.error().message;
}

// At a rate far below the last place of most weights: the losses of bfloat16 weights alone follow
// those of float32 weights with stochastic rounding, and stay behind with rounding to nearest.
TEST_F(TrainerTest, StochasticRoundingLearnsWhereRoundingToNearestStalls) {
  const TinyModel model = TinyModelOf("gpt2");
  TrainOptions options = OptionsFor(model);
  options.max_steps = 300;
  options.learning_rate = 5e-5;
  options.warmup_steps = 0;
  options.lr_scheduler_type = ScheduleKind::kConstant;
  const auto gain = [&] {
    const Outcome outcome = TrainOn(model, options, {});
    const auto mean = [&](size_t first) {
      const auto begin = outcome.losses.begin() + static_cast<std::ptrdiff_t>(first);
      return std::accumulate(begin, begin + 20, 0.0) / 20;
    };
    return mean(0) - mean(280);
  };
  const double exact = gain();
  options.precision = Precision::kBf16;
  options.lean = true;
  const double stochastic = gain();
  options.optimizer.stochastic_rounding = false;
  const double nearest = gain();
  EXPECT_GT(stochastic, 0.9 * exact) << exact << " " << nearest;
  EXPECT_LT(nearest, 0.3 * exact) << exact << " " << stochastic;
}

// A loss that is not a number ends the run, and the tensor where it began is named.
TEST_F(TrainerTest, NamesTheTensorThatWentBad) {
  const TinyModel model = TinyModelOf("gpt2");
  TrainOptions options = OptionsFor(model);
  options.max_grad_norm = 0;
  options.lr_scheduler_type = ScheduleKind::kConstant;
  options.learning_rate = 1e30;
  options.max_steps = 20;
  Result<Trainer> trainer = Trainer::Create(ConfigOf(model), options, DataFor(model));
  ASSERT_TRUE(trainer.ok());
  ASSERT_TRUE(trainer->Start({}).ok());
  TrainObserver quiet;
  const Result<TrainResult> result = trainer->Run(quiet);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("transformer."), std::string::npos)
      << result.error().message;
}

TEST_F(TrainerTest, EachBudgetIsKept) {
  for (const TinyModel& model : TinyModels()) {
    SCOPED_TRACE(model.name);
    TrainOptions options = OptionsFor(model);
    options.gradient_accumulation_steps = 1;
    options.sequence_length = 32;
    options.target_sequence_length = model.task == Task::kSeq2SeqLm ? 32 : 0;
    const std::vector<BatchShape> shapes = {
        {options.sequence_length, options.target_sequence_length}};
    const Result<BudgetAnswer> roomy = FitBudget(ConfigOf(model), options, shapes, true, GiB(1));
    ASSERT_TRUE(roomy.ok()) << roomy.error().message;
    ASSERT_TRUE(roomy->cheapest);
    EXPECT_TRUE(roomy->cheapest->changes.empty());
    const Bytes less(roomy->cheapest->arena.count() * 9 / 10);
    const Result<BudgetAnswer> tight = FitBudget(ConfigOf(model), options, shapes, true, less);
    ASSERT_TRUE(tight.ok());
    ASSERT_TRUE(tight->cheapest);
    EXPECT_FALSE(tight->cheapest->changes.empty());
    EXPECT_LE(tight->cheapest->arena, less);
    const Result<BudgetAnswer> none = FitBudget(ConfigOf(model), options, shapes, true, KiB(64));
    ASSERT_TRUE(none.ok());
    EXPECT_FALSE(none->cheapest);
    EXPECT_GT(none->smallest.arena, KiB(64));
  }
}

// All budgets between what is needed at most and at least: the losses are those without a budget.
TEST_F(TrainerTest, ADeterministicBudgetChangesNoBit) {
  for (const TinyModel& model : TinyModels()) {
    TrainOptions options = OptionsFor(model);
    options.max_steps = 3;
    const Outcome free = TrainOn(model, options, {});
    Bytes budget = GiB(1);
    int changed = 0;
    for (;;) {
      options.deterministic = true;
      Result<Trainer> trainer = Trainer::Create(ConfigOf(model), options, DataFor(model));
      ASSERT_TRUE(trainer.ok());
      const Result<BudgetAnswer> answer = trainer->KeepBudget(budget);
      ASSERT_TRUE(answer.ok());
      if (!answer->cheapest) {
        ASSERT_TRUE(answer->otherwise);
        break;
      }
      SCOPED_TRACE(model.name + " in " + FormatBytes(budget));
      EXPECT_EQ(trainer->options().per_device_train_batch_size, 4);
      EXPECT_EQ(trainer->options().gradient_accumulation_steps, 2);
      changed += answer->cheapest->changes.empty() ? 0 : 1;
      ASSERT_TRUE(trainer->Start({}).ok());
      Recorder recorder;
      ASSERT_TRUE(trainer->Run(recorder).ok());
      EXPECT_EQ(recorder.losses, free.losses);
      budget = answer->cheapest->arena - Bytes(1);
    }
    EXPECT_GT(changed, 0) << model.name;
  }
}

TEST_F(TrainerTest, ADeterministicBudgetSaysWhatWouldFitWithoutIt) {
  const TinyModel model = TinyModelOf("bert masked lm");
  TrainOptions options = OptionsFor(model);
  options.gradient_accumulation_steps = 1;
  const std::vector<BatchShape> shapes = {{32, 0}};
  options.sequence_length = 32;
  const Result<BudgetAnswer> least = FitBudget(ConfigOf(model), options, shapes, true, KiB(1));
  ASSERT_TRUE(least.ok());
  options.deterministic = true;
  const Result<BudgetAnswer> answer =
      FitBudget(ConfigOf(model), options, shapes, true, least->smallest.arena);
  ASSERT_TRUE(answer.ok());
  EXPECT_FALSE(answer->cheapest);
  EXPECT_GT(answer->smallest.arena, least->smallest.arena);
  ASSERT_TRUE(answer->otherwise);
  EXPECT_LE(answer->otherwise->arena, least->smallest.arena);
  EXPECT_FALSE(answer->otherwise->options.deterministic);
  for (const Precision precision : {Precision::kBf16, Precision::kFp32}) {
    for (const bool cuda : {false, true}) {
      // Chunks of the loss keep float32 sums on the CPU alone.
      options.precision = precision;
      options.cuda = cuda;
      const Result<BudgetAnswer> none = FitBudget(ConfigOf(model), options, shapes, true, KiB(1));
      ASSERT_TRUE(none.ok());
      const bool chunks = none->smallest.options.loss_chunk_rows > 0;
      EXPECT_TRUE(!chunks || (precision == Precision::kFp32 && !cuda));
      EXPECT_EQ(none->smallest.options.per_device_train_batch_size, 4);
    }
  }
}

}  // namespace
}  // namespace headroom::engine
