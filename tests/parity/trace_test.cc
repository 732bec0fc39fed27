// SPDX-License-Identifier: Apache-2.0
//
// Predicted events against recorded ones, one by one: the allocations and frees of the first steps
// of real runs (tests/data/traces, made by scripts/trace_events.py from PyTorch 2.11.0 snapshots).
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "model/config.h"
#include "predict/predict.h"

namespace headroom {
namespace {

struct Event {
  bool alloc = false;
  int64_t value = 0;  // bytes of an allocation, or the number of the allocation that is freed
};

std::vector<Event> ReadTrace(const std::string& name) {
  std::ifstream in(std::string(HEADROOM_TEST_DATA) + "/traces/" + name + ".txt");
  std::vector<Event> events;
  for (std::string line; std::getline(in, line);) {
    events.push_back({line[0] == '+', std::stoll(line.substr(1))});
  }
  return events;
}

// The predicted events in the same form. The ideal allocator hands out what was asked for.
std::vector<Event> PredictEvents(const char* config_json, const Recipe& recipe) {
  const Result<ModelConfig> config = ModelConfig::FromJson(config_json, "test");
  EXPECT_TRUE(config.ok());
  Platform platform = MeasuredPlatform();
  platform.allocator.backend = AllocatorOptions::Backend::kIdeal;
  const Result<Prediction> prediction = Predict(*config, recipe, platform);
  EXPECT_TRUE(prediction.ok());
  std::vector<Event> events;
  constexpr int64_t kProbe = 1;  // the block of the script's first CUDA call, before the recording
  for (const MemoryEvent& event : prediction->ledger.events()) {
    const auto block = static_cast<int64_t>(event.block) - kProbe;
    if (event.type == MemoryEvent::Type::kAlloc && block >= 0)
      events.push_back({true, event.bytes});
    if (event.type == MemoryEvent::Type::kFree && block >= 0) events.push_back({false, block});
  }
  return events;
}

// Frees that follow each other may come in any order: Python's dictionaries decide it.
void SortRunsOfFrees(std::vector<Event>& events) {
  auto begin = events.begin();
  while (begin != events.end()) {
    begin = std::find_if(begin, events.end(), [](const Event& e) { return !e.alloc; });
    const auto end = std::find_if(begin, events.end(), [](const Event& e) { return e.alloc; });
    std::sort(begin, end, [](const Event& a, const Event& b) { return a.value < b.value; });
    begin = end;
  }
}

Recipe TrainingRecipe(Task task, int64_t sequence_length, Precision precision) {
  Recipe recipe;
  recipe.task = task;
  recipe.per_device_train_batch_size = 4;
  recipe.sequence_length = sequence_length;
  recipe.precision = precision;
  return recipe;
}

void ExpectSameEvents(const std::string& trace, const char* config, const Recipe& recipe) {
  std::vector<Event> recorded = ReadTrace(trace);
  std::vector<Event> predicted = PredictEvents(config, recipe);
  ASSERT_GT(recorded.size(), 1000u) << "no trace " << trace;
  // The recording ends inside a run of frees.
  while (!recorded.back().alloc) recorded.pop_back();
  ASSERT_GE(predicted.size(), recorded.size());
  predicted.resize(recorded.size());
  SortRunsOfFrees(recorded);
  SortRunsOfFrees(predicted);
  for (size_t i = 0; i < recorded.size(); ++i) {
    ASSERT_EQ(recorded[i].alloc, predicted[i].alloc) << trace << ": event " << i;
    ASSERT_EQ(recorded[i].value, predicted[i].value) << trace << ": event " << i;
  }
}

constexpr const char* kBertLarge =
    R"({"model_type": "bert", "vocab_size": 30522, "hidden_size": 1024,
    "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096})";
constexpr const char* kLlama160m =
    R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 768,
    "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_key_value_heads": 12, "max_position_embeddings": 2048})";

TEST(RecordedTrace, BertLargeInBf16) {
  ExpectSameEvents("bert-large--b4-s512-bf16", kBertLarge,
                   TrainingRecipe(Task::kSequenceClassification, 512, Precision::kBf16));
}

TEST(RecordedTrace, Gpt2InFp16WithGradScaler) {
  ExpectSameEvents("gpt2--b4-s1024-fp16", R"({"model_type": "gpt2"})",
                   TrainingRecipe(Task::kCausalLm, 1024, Precision::kFp16));
}

TEST(RecordedTrace, LlamaWithEagerAttention) {
  Recipe recipe = TrainingRecipe(Task::kCausalLm, 512, Precision::kBf16);
  recipe.attn_implementation = AttnImplementation::kEager;
  ExpectSameEvents("llama-160m--b4-s512-bf16-eager", kLlama160m, recipe);
}

TEST(RecordedTrace, LlamaWithGradientCheckpointing) {
  Recipe recipe = TrainingRecipe(Task::kCausalLm, 512, Precision::kBf16);
  recipe.gradient_checkpointing = true;
  ExpectSameEvents("llama-160m--b4-s512-bf16-ckpt", kLlama160m, recipe);
}

}  // namespace
}  // namespace headroom
