// SPDX-License-Identifier: Apache-2.0
//
// What a run shows while it trains: one line, kept up to date on a terminal and no wider than it; a
// line every logging_steps in a pipe; every step in the file of --log, with the memory that the
// process then holds.
#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/trainer.h"

namespace headroom::cli {

class TrainProgress : public engine::TrainObserver {
 public:
  struct Options {
    int64_t max_steps = 0;
    int64_t logging_steps = 10;
    Bytes arena;
    bool to_stderr = false;          // standard output belongs to --json
    std::filesystem::path log = {};  // empty: none
    bool continues = false;          // the log goes on behind what it holds
  };
  // Fails when the log cannot be written.
  static Result<TrainProgress> Create(Options options);

  void OnStep(const engine::StepReport& report) override;
  void OnEvaluate(const engine::EvalReport& report) override;
  void OnSave(const std::filesystem::path& path) override;
  bool ShouldStop() override;

  const std::vector<engine::StepReport>& steps() const { return steps_; }
  const std::vector<engine::EvalReport>& evaluations() const { return evaluations_; }

 private:
  explicit TrainProgress(Options options) : options_(std::move(options)) {}
  void Say(const std::string& line);
  void Clear();
  void Log(const engine::StepReport& report);
  std::string StatusLine(const engine::StepReport& report) const;

  Options options_;
  int descriptor_ = 1;  // where it is said
  bool terminal_ = false;
  bool shown_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_ = {};
  std::ofstream log_;
  std::vector<engine::StepReport> steps_;
  std::vector<engine::EvalReport> evaluations_;
};

}  // namespace headroom::cli
