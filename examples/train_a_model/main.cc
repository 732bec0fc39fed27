// SPDX-License-Identifier: Apache-2.0
//
// Ten steps of a tiny GPT-2, in an arena whose size was known before it was allocated.
#include <cstdio>
#include <utility>

#include "engine/trainer.h"

namespace engine = headroom::engine;

struct Printer : engine::TrainObserver {
  void OnStep(const engine::StepReport& step) override {
    std::printf("step %2d  loss %.4f\n", static_cast<int>(step.step), step.loss);
  }
};

int Fail(const headroom::Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

int main() {
  const auto config = headroom::ModelConfig::FromJson(
      R"({"model_type": "gpt2", "vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 4,
          "n_positions": 32})",
      "tiny");
  if (!config.ok()) return Fail(config.error());
  engine::TrainOptions options;
  options.max_steps = 10;
  options.learning_rate = 1e-2;
  engine::TrainData data;
  data.train = engine::SyntheticDataset(
      {.rows = 64, .sequence = 32, .vocabulary = 512, .task = options.task});

  auto trainer = engine::Trainer::Create(*config, options, std::move(data));
  if (!trainer.ok()) return Fail(trainer.error());
  const auto planned = static_cast<long long>(trainer->plan().arena_size().count());
  if (const auto status = trainer->Start({}); !status.ok()) return Fail(status.error());
  Printer printer;
  if (const auto result = trainer->Run(printer); !result.ok()) return Fail(result.error());
  std::printf("planned %lld bytes, arena %zu bytes\n", planned, trainer->plan().arena().size());
}
