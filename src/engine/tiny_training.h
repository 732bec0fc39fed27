// SPDX-License-Identifier: Apache-2.0
//
// For tests: whole trainings of the tiny models, eight steps on synthetic data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/tiny_models.h"
#include "engine/trainer.h"

namespace headroom::engine {

ModelConfig ConfigOf(const TinyModel& model);

// Examples of 12 tokens for the model's task, and six to validate with.
TrainData DataFor(const TinyModel& model, int64_t rows = 26);

// Eight steps of two micro-batches.
TrainOptions OptionsFor(const TinyModel& model);

// Keeps the losses; stops behind the step of this number, when it is not 0.
struct Recorder : TrainObserver {
  void OnStep(const StepReport& report) override { losses.push_back(report.loss); }
  bool ShouldStop() override {
    return stop_after > 0 && static_cast<int>(losses.size()) >= stop_after;
  }
  std::vector<double> losses;
  int stop_after = 0;
};

struct Outcome {
  std::vector<double> losses;  // of each step
  TrainResult result;
  std::optional<std::string> other_algorithms;
};

// Trains; `stop_after` steps, when that is not 0, it is interrupted. A failure is the test's end.
Outcome TrainOn(const TinyModel& model, const TrainOptions& options, const Trainer::Origin& origin,
                int stop_after = 0);

}  // namespace headroom::engine
