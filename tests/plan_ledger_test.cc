// SPDX-License-Identifier: Apache-2.0
//
// What every predicted ledger must hold, whatever the model and recipe.
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "ledger/ledger_json.h"
#include "predict/predict.h"
#include "report/plan_report.h"

namespace headroom {
namespace {

struct Case {
  std::string name;
  std::string config;
  Recipe recipe;
};

void PrintTo(const Case& plan, std::ostream* out) { *out << plan.name; }

Recipe With(Task task, Precision precision) {
  Recipe recipe;
  recipe.task = task;
  recipe.precision = precision;
  recipe.per_device_train_batch_size = 2;
  recipe.sequence_length = 64;
  return recipe;
}

std::vector<Case> Cases() {
  const std::string bert = R"({"model_type": "bert", "hidden_size": 128, "num_hidden_layers": 3,
    "num_attention_heads": 2, "intermediate_size": 512})";
  const std::string gpt2 = R"({"model_type": "gpt2", "n_embd": 128, "n_layer": 3, "n_head": 2})";
  const std::string llama = R"({"model_type": "llama", "vocab_size": 1000, "hidden_size": 128,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 256})";
  Recipe eager = With(Task::kSequenceClassification, Precision::kFp32);
  eager.attn_implementation = AttnImplementation::kEager;
  eager.optim = Optim::kAdamWTorch;
  Recipe checkpointed = With(Task::kCausalLm, Precision::kBf16);
  checkpointed.gradient_checkpointing = true;
  checkpointed.gradient_accumulation_steps = 2;
  Recipe half = With(Task::kCausalLm, Precision::kBf16);
  half.weights_dtype = DType::kBFloat16;
  Recipe beams = half;
  beams.driver = Driver::kGenerate;
  beams.generation.num_beams = 3;
  return {{"bert_bf16", bert, With(Task::kMaskedLm, Precision::kBf16)},
          {"bert_eager_foreach", bert, eager},
          {"gpt2_fp16", gpt2, With(Task::kCausalLm, Precision::kFp16)},
          {"llama_checkpointed_accumulated", llama, checkpointed},
          {"llama_generates_with_beams", llama, beams},
          {"llama_half_weights", llama, half}};
}

class PlanLedger : public ::testing::TestWithParam<Case> {
 protected:
  PlanLedger() {
    const Result<ModelConfig> config = ModelConfig::FromJson(GetParam().config, "test");
    EXPECT_TRUE(config.ok()) << config.error().message;
    Result<Prediction> played = Predict(*config, GetParam().recipe, MeasuredPlatform());
    EXPECT_TRUE(played.ok()) << played.error().message;
    prediction = *std::move(played);
  }
  Prediction prediction;
};

// Wherever the memory runs out - while the weights load, in any phase - it is told, and the run's
// ledger ends there.
TEST_P(PlanLedger, EndsWhereTheMemoryRunsOut) {
  const Result<ModelConfig> config = ModelConfig::FromJson(GetParam().config, "test");
  ASSERT_TRUE(config.ok());
  Platform platform = MeasuredPlatform();
  const Bytes peak = prediction.ledger.peak_reserved();
  for (int part = 0; part < 16; ++part) {
    platform.memory_limit = Bytes(peak.count() * part / 16);
    const Result<Prediction> capped = Predict(*config, GetParam().recipe, platform);
    ASSERT_TRUE(capped.ok()) << capped.error().message;
    EXPECT_LE(capped->ledger.peak_reserved(), *platform.memory_limit);
    if (part < 8) {
      EXPECT_TRUE(capped->out_of_memory.has_value()) << part;
    }
    if (capped->out_of_memory) {
      EXPECT_EQ(capped->out_of_memory->allocated, capped->ledger.allocated());
    }
  }
}

// The reader plays every event again: conservation, no double free, allocated <= reserved.
TEST_P(PlanLedger, ComesBackFromJsonTheSame) {
  const std::string text = ToJson(prediction.ledger);
  const Result<Ledger> back = LedgerFromJson(text, "ledger");
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(ToJson(*back), text);
}

TEST_P(PlanLedger, PeakAndPhasesAddUp) {
  const PlanReport report = BuildPlanReport(prediction.ledger, {});
  const auto sum = [](const ComponentBytes& components) {
    return std::accumulate(components.begin(), components.begin() + kAllocatedComponentCount,
                           Bytes(0));
  };
  EXPECT_EQ(sum(report.peak.components), report.allocated);
  Bytes modules;
  for (const ModuleBytes& module : report.peak.modules) modules += sum(module.bytes);
  EXPECT_EQ(modules, report.allocated);
  for (const PlanPhase& phase : report.phases) {
    EXPECT_EQ(sum(phase.components), phase.mark.allocated) << phase.mark.name;
    EXPECT_LE(phase.mark.allocated, phase.mark.peak_allocated);
    EXPECT_LE(phase.mark.peak_allocated, report.allocated);
  }
}

TEST_P(PlanLedger, WeightsAreThoseOfTheModel) {
  const PlanReport report = BuildPlanReport(prediction.ledger, {});
  const DType dtype = GetParam().recipe.weights_dtype.value_or(DType::kFloat32);
  const Bytes weights = report.phases.back().components[static_cast<size_t>(Component::kWeights)];
  const Bytes exact(prediction.parameters * ElementSize(dtype));
  EXPECT_GE(weights, exact);
  // The allocator rounds every tensor up, the large ones by less than a MiB each.
  EXPECT_LE(weights, exact + MiB(40));
  EXPECT_EQ(prediction.device(), report.device);
}

INSTANTIATE_TEST_SUITE_P(Recipes, PlanLedger, ::testing::ValuesIn(Cases()),
                         [](const auto& plan) { return plan.param.name; });

}  // namespace
}  // namespace headroom
