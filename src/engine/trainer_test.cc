// SPDX-License-Identifier: Apache-2.0
#include "engine/trainer.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <fstream>

#include "engine/budget.h"
#include "engine/host_device.h"
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

const TinyModel& Model(const std::string& name) {
  static const std::vector<TinyModel> models = TinyModels();
  for (const TinyModel& model : models) {
    if (model.name == name) return model;
  }
  HEADROOM_CHECK(false, "no such model");
}

std::string Contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Stopped after three steps and resumed, a run ends in the weights of one that was not.
TEST_F(TrainerTest, ResumesToTheBit) {
  for (const TinyModel& model : TinyModels()) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
      SCOPED_TRACE(model.name + " " + std::string(Name(precision)));
      TrainOptions options = OptionsFor(model);
      options.precision = precision;
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
    const TinyModel& model = Model(name);
    TrainOptions options = OptionsFor(model);
    options.precision = Precision::kBf16;
    options.output_dir = folder_ / "cpu";
    const Outcome cpu = TrainOn(model, options, {});
    HostDevice device("host");
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
  const TinyModel& model = Model("gpt2");
  TrainOptions options = OptionsFor(model);
  options.output_dir = folder_;
  HostDevice first("card A");
  first.set_algorithms("card A: split by 3");
  const Outcome stopped = TrainOn(model, options, {.device = &first}, 3);
  EXPECT_EQ(Contents(stopped.result.saved / "gemm_algorithms.json"), "card A: split by 3");
  HostDevice second("card A");
  const Outcome resumed =
      TrainOn(model, options, {.checkpoint = stopped.result.saved, .device = &second}, 2);
  EXPECT_EQ(second.Algorithms(), "card A: split by 3");
  EXPECT_FALSE(resumed.other_algorithms);
  EXPECT_EQ(Contents(resumed.result.saved / "gemm_algorithms.json"), "card A: split by 3");
}

TEST_F(TrainerTest, SaysWhereItResumesWithOtherAlgorithms) {
  const TinyModel& model = Model("gpt2");
  TrainOptions options = OptionsFor(model);
  options.output_dir = folder_;
  HostDevice first("card A");
  const Outcome stopped = TrainOn(model, options, {.device = &first}, 3);
  const std::string file = (stopped.result.saved / "gemm_algorithms.json").string();
  HostDevice other("card B");
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
  const TinyModel& model = Model("gpt2");
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
  const TinyModel& model = Model("gpt2");
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

// A loss that is not a number ends the run, and the tensor where it began is named.
TEST_F(TrainerTest, NamesTheTensorThatWentBad) {
  const TinyModel& model = Model("gpt2");
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

}  // namespace
}  // namespace headroom::engine
