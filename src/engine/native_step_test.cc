// SPDX-License-Identifier: Apache-2.0
#include "engine/native_step.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/format.h"
#include "engine/tiny_training.h"
#include "model/parameter_table.h"

namespace headroom::engine {
namespace {

using graph::Recompute;

TEST(NativeStep, LedgersPeakIsThePlan) {
  for (const TinyModel& model : TinyModels()) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kCheap, Recompute::kBlock}) {
        for (const bool cuda : {false, true}) {
          SCOPED_TRACE(model.name + " " + std::string(Name(precision)) + " recompute " +
                       std::string(Name(recompute)) + (cuda ? " cuda" : ""));
          NativeOptions options = TinyOptions(model);
          options.precision = precision;
          options.recompute = recompute;
          options.cuda = cuda;
          Result<NativeStep> step = PlanTrainingStep(ConfigOf(model), options);
          ASSERT_TRUE(step.ok()) << step.error().message;
          const Ledger ledger = LedgerOf(step->graph(), step->plan);
          EXPECT_EQ(ledger.peak_allocated(), step->plan.lower_bound);
          EXPECT_EQ(ledger.peak_reserved(), step->plan.size);
          // A handful of tensors, of which some are as large as all others, do not always pack.
          EXPECT_LE(step->plan.Ratio(), 1.025);
        }
      }
    }
  }
}

TEST(NativeStep, ModelsOfRealSizeLoseNothingToGaps) {
  for (const char* name : {"bert", "gpt2"}) {
    Result<ModelConfig> config = ModelConfig::Default(name);
    ASSERT_TRUE(config.ok()) << config.error().message;
    for (const Recompute recompute : {Recompute::kNone, Recompute::kCheap, Recompute::kBlock}) {
      for (const bool cuda : {false, true}) {
        SCOPED_TRACE(Format("{} recompute {} {}", name, Name(recompute), cuda ? "cuda" : ""));
        NativeOptions options;
        options.model.task = *name == 'b' ? Task::kSequenceClassification : Task::kCausalLm;
        options.model.rows = {.batch = 8, .sequence = 512};
        options.precision = Precision::kBf16;
        options.recompute = recompute;
        options.cuda = cuda;
        Result<NativeStep> step = PlanTrainingStep(*config, options);
        ASSERT_TRUE(step.ok()) << step.error().message;
        EXPECT_LE(step->plan.Ratio(), 1.005);
      }
    }
  }
}

// Where one micro-step makes a step, gradients take the place of activations that backward has done
// with.
TEST(NativeStep, GradientsOfOneMicroStepCostLess) {
  for (const TinyModel& model : TinyModels()) {
    SCOPED_TRACE(model.name);
    NativeOptions options = TinyOptions(model);
    Result<NativeStep> one = PlanTrainingStep(ConfigOf(model), options);
    options.gradient_accumulation_steps = 2;
    Result<NativeStep> two = PlanTrainingStep(ConfigOf(model), options);
    ASSERT_TRUE(one.ok() && two.ok());
    EXPECT_LT(one->plan.size, two->plan.size);
  }
}

// Names and shapes are those of transformers, which the parameter table has.
TEST(NativeStep, HasTheParametersOfTheModel) {
  for (const TinyModel& model : TinyModels()) {
    SCOPED_TRACE(model.name);
    const ModelConfig config = ConfigOf(model);
    Result<ParameterTable> table = ParameterTable::Build(config, model.task);
    ASSERT_TRUE(table.ok());
    Result<NativeStep> step = PlanTrainingStep(config, TinyOptions(model));
    ASSERT_TRUE(step.ok()) << step.error().message;
    size_t parts = 0;
    for (const graph::Parameter& parameter : step->graph().parameters()) {
      for (const graph::ParameterPart& part : parameter.parts) {
        ++parts;
        const ParameterSpec* spec = table->Find(part.name);
        ASSERT_NE(spec, nullptr) << part.name;
        EXPECT_EQ(spec->shape, part.shape) << part.name;
      }
    }
    size_t expected = 0;
    for (const ParameterSpec& spec : table->entries()) {
      // Marian's sinusoids are a parameter of transformers that is not trained.
      const bool constant =
          config.model_type() == "marian" && spec.name.ends_with("embed_positions.weight");
      expected += !spec.is_buffer && !constant ? 1 : 0;
    }
    EXPECT_EQ(parts, expected);
  }
}

TEST(NativeStep, LossFalls) {
  for (const TinyModel& model : TinyModels()) {
    SCOPED_TRACE(model.name);
    TinyRun run(model, TinyOptions(model));
    const float first = run.ForwardBackward();
    EXPECT_TRUE(std::isfinite(first));
    float last = first;
    for (int i = 0; i < 30; ++i) {
      run.Update(3e-3F);
      last = run.ForwardBackward();
    }
    EXPECT_LT(last, 0.7F * first);
  }
}

// What is computed again has the bits that it had.
TEST(NativeStep, RecomputationChangesNoBit) {
  for (const TinyModel& model : TinyModels()) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      NativeOptions options = TinyOptions(model);
      options.precision = precision;
      TinyRun plain(model, options);
      const float loss = plain.ForwardBackward();
      for (const Recompute recompute : {Recompute::kCheap, Recompute::kBlock}) {
        SCOPED_TRACE(model.name + " " + std::string(Name(precision)) + " recompute " +
                     std::string(Name(recompute)));
        options.recompute = recompute;
        TinyRun again(model, options);
        EXPECT_EQ(again.ForwardBackward(), loss);
        EXPECT_EQ(again.Gradients(), plain.Gradients());
        EXPECT_LT(again.step().plan.size, plain.step().plan.size);
      }
    }
  }
}

// Nothing reads what it has not written, nor what another tensor has overwritten.
TEST(NativeStep, ReadsNothingThatIsPoisoned) {
  for (const TinyModel& model : TinyModels()) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kCheap, Recompute::kBlock}) {
      SCOPED_TRACE(model.name + " recompute " + std::string(Name(recompute)));
      NativeOptions options = TinyOptions(model);
      options.recompute = recompute;
      TinyRun plain(model, options);
      TinyRun poisoned(model, options);
      poisoned.set_poison(true);
      EXPECT_EQ(plain.ForwardBackward(), poisoned.ForwardBackward());
      EXPECT_EQ(plain.Gradients(), poisoned.Gradients());
    }
  }
}

}  // namespace
}  // namespace headroom::engine
