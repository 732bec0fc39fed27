// SPDX-License-Identifier: Apache-2.0
//
// Runs on a device that is as late as it may be: the same reports, files and errors as the CPU's.
#include "engine/step_runner.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/format.h"
#include "engine/lazy_device.h"
#include "engine/tiny_training.h"

namespace headroom::engine {
namespace {

namespace fs = std::filesystem;

// What a run tells, a line for each call.
struct Diary : TrainObserver {
  void OnStep(const StepReport& r) override {
    lines.push_back(
        Format("step {} epoch {} loss {} lr {} norm {} clipped {} skipped {} scale {} "
               "samples {} tokens {}",
               r.step, r.epoch, r.loss, r.learning_rate, r.grad_norm, r.clipped, r.skipped,
               r.loss_scale, r.samples, r.tokens));
    good = good && r.seconds > 0;
  }
  void OnEvaluate(const EvalReport& r) override {
    lines.push_back(Format("evaluation {} {} {}", r.step, r.loss, r.accuracy.value_or(-1)));
  }
  void OnSave(const fs::path& path) override { lines.push_back(path.filename().string()); }
  bool ShouldStop() override { return stop_at > 0 && ++asked >= stop_at; }

  std::vector<std::string> lines;
  bool good = true;
  int asked = 0;
  int stop_at = 0;
};

class OnADevice : public testing::Test {
 protected:
  OnADevice() {
    std::string name = (fs::temp_directory_path() / "headroom_device_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~OnADevice() override { fs::remove_all(folder_); }

  Trainer TrainerOf(const TinyModel& model, const TrainOptions& options) {
    Result<Trainer> trainer = Trainer::Create(ConfigOf(model), options, DataFor(model));
    HEADROOM_CHECK(trainer.ok(), trainer.error().message);
    return std::move(*trainer);
  }

  TrainOptions OptionsOf(const TinyModel& model, const std::string& folder) {
    TrainOptions options = OptionsFor(model);
    options.weight_decay = 0;
    options.max_steps = 9;
    options.eval_steps = 3;
    options.save_steps = 4;
    options.output_dir = folder_ / folder;
    return options;
  }

  static std::string ErrorOf(Trainer trainer, Device* device) {
    HEADROOM_CHECK(trainer.Start({.device = device}).ok(), "a start");
    TrainObserver quiet;
    const Result<TrainResult> result = trainer.Run(quiet);
    return result.ok() ? "" : result.error().message;
  }

  std::string Weights(const std::string& folder) const {
    std::ifstream file(folder_ / folder / "model.safetensors", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fs::path folder_;
};

TEST_F(OnADevice, ReportsFilesAndWeightsAreThoseOfTheCpu) {
  for (const TinyModel& model : TinyModels()) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
      SCOPED_TRACE(model.name + " " + std::string(Name(precision)));
      LazyDevice device;
      std::vector<Diary> diaries(2);
      for (const bool lazy : {false, true}) {
        TrainOptions options = OptionsOf(model, lazy ? "lazy" : "cpu");
        options.precision = precision;
        Trainer trainer = TrainerOf(model, options);
        ASSERT_TRUE(trainer.Start({.device = lazy ? &device : nullptr}).ok());
        const Result<TrainResult> result = trainer.Run(diaries[lazy ? 1 : 0]);
        ASSERT_TRUE(result.ok()) << result.error().message;
        EXPECT_TRUE(diaries[lazy ? 1 : 0].good);
      }
      diaries[1].lines.back() = diaries[0].lines.back();  // the folder's own name
      EXPECT_EQ(diaries[0].lines, diaries[1].lines);
      EXPECT_EQ(diaries[0].lines.size(), 9U + 3U + 3U + 1U);
      EXPECT_EQ(Weights("cpu"), Weights("lazy"));
      EXPECT_EQ(Weights("cpu/checkpoint-4"), Weights("lazy/checkpoint-4"));
      EXPECT_EQ(device.changed_uploads(), 0);
      // A loss is read behind the start of the next step; with a loss scale it cannot be.
      EXPECT_EQ(device.most_ahead(), precision == Precision::kFp16 ? 0 : 1);
      fs::remove_all(folder_ / "cpu");
      fs::remove_all(folder_ / "lazy");
    }
  }
}

// The step that was started when the run was stopped is finished, and saved.
TEST_F(OnADevice, AStoppedRunGoesOnAsOneThatWasNot) {
  const TinyModel model = TinyModels()[0];
  TrainOptions options = OptionsOf(model, "straight");
  options.eval_steps = options.save_steps = 0;
  Diary straight;
  Trainer whole = TrainerOf(model, options);
  ASSERT_TRUE(whole.Start({}).ok());
  ASSERT_TRUE(whole.Run(straight).ok());
  options.output_dir = folder_ / "stopped";
  LazyDevice device;
  Diary stopped;
  stopped.stop_at = 3;
  Trainer first = TrainerOf(model, options);
  ASSERT_TRUE(first.Start({.device = &device}).ok());
  const Result<TrainResult> part = first.Run(stopped);
  ASSERT_TRUE(part.ok());
  EXPECT_TRUE(part->interrupted);
  EXPECT_EQ(part->steps, 4);
  EXPECT_EQ(part->saved, options.output_dir / "checkpoint-4");
  EXPECT_EQ(stopped.lines.size(), 5U);
  LazyDevice other;
  Trainer second = TrainerOf(model, options);
  ASSERT_TRUE(second.Start({.checkpoint = part->saved, .device = &other}).ok());
  Diary rest;
  ASSERT_TRUE(second.Run(rest).ok());
  EXPECT_EQ(Weights("straight"), Weights("stopped"));
}

// The next step is started by then; the error is that of the step itself all the same.
TEST_F(OnADevice, ALossThatIsNotFiniteEndsTheRunInItsStep) {
  for (const TinyModel& model : TinyModels()) {
    for (const double rate : {1e3, 1e10, 1e30}) {
      SCOPED_TRACE(Format("{} {}", model.name, rate));
      TrainOptions options = OptionsOf(model, "bad");
      options.gradient_accumulation_steps = 1;
      options.eval_steps = options.save_steps = 0;
      options.output_dir.clear();
      options.max_grad_norm = 0;
      options.max_steps = 12;
      options.warmup_steps = 0;
      options.learning_rate = rate;
      options.lr_scheduler_type = ScheduleKind::kConstant;
      const std::string error = ErrorOf(TrainerOf(model, options), nullptr);
      LazyDevice device;
      EXPECT_EQ(ErrorOf(TrainerOf(model, options), &device), error);
      if (rate == 1e30) {
        EXPECT_NE(error.find("is not finite"), std::string::npos) << error;
      }
    }
  }
}

// Of several micro-batches it is the first that lost it, wherever the sum was read.
TEST_F(OnADevice, ALossThatIsNotFiniteNamesTheTensorOfItsMicroBatch) {
  for (const TinyModel& model : TinyModels()) {
    SCOPED_TRACE(model.name);
    TrainOptions options = OptionsOf(model, "bad");
    options.gradient_accumulation_steps = 3;
    options.eval_steps = options.save_steps = 0;
    options.output_dir.clear();
    options.max_grad_norm = 0;
    options.max_steps = 12;
    options.warmup_steps = 0;
    options.learning_rate = 1e30;
    options.lr_scheduler_type = ScheduleKind::kConstant;
    LazyDevice device;
    const auto named = [](const std::string& error) {
      return error.substr(std::min(error.find("the first"), error.size()));
    };
    const std::string error = ErrorOf(TrainerOf(model, options), nullptr);
    EXPECT_NE(error.find("is not finite"), std::string::npos) << error;
    EXPECT_EQ(named(ErrorOf(TrainerOf(model, options), &device)), named(error));
  }
}

// Weights so large that a finite loss has gradients that are not: they are named though the next
// step has written over them.
TEST_F(OnADevice, GradientsThatAreNotFiniteEndTheRunInTheirStep) {
  TinyModel model = TinyModels()[0];
  ASSERT_EQ(model.name, "bert classifier");
  const std::string range = "\"initializer_range\": 0.2";
  model.config.replace(model.config.find(range), range.size(), "\"initializer_range\": 1e12");
  TrainOptions options = OptionsOf(model, "bad");
  options.output_dir.clear();
  const std::string error = ErrorOf(TrainerOf(model, options), nullptr);
  EXPECT_NE(error.find("step 1: "), std::string::npos) << error;
  EXPECT_NE(error.find("values of the gradients are not finite"), std::string::npos) << error;
  LazyDevice device;
  EXPECT_EQ(ErrorOf(TrainerOf(model, options), &device), error);
  EXPECT_EQ(device.most_ahead(), 1);
}

}  // namespace
}  // namespace headroom::engine
