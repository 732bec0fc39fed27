// SPDX-License-Identifier: Apache-2.0
//
// What a native run tells when it has ended, under Trainer's metric names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "report/html_report.h"
#include "report/plan_report.h"
#include "report/text.h"

namespace headroom {

// A part of the run's memory: as it was planned, and as the system counts the pages that hold it.
struct TrainMemoryRow {
  std::string key;   // in JSON
  std::string name;  // for people
  std::optional<Bytes> planned;
  std::optional<Bytes> measured;
};

struct TrainSummary {
  int64_t steps = 0;
  int64_t max_steps = 0;
  double epochs = 0;
  double train_runtime = 0;  // seconds
  double samples_per_second = 0;
  double tokens_per_second = 0;
  double steps_per_second = 0;
  double train_loss = 0;  // mean over steps
  std::optional<double> eval_loss;
  std::optional<double> eval_accuracy;
  double eval_runtime = 0;
  double clipped_share = 0;   // of steps whose gradients were clipped
  int64_t skipped_steps = 0;  // fp16: gradients that overflowed
  double waiting_share = 0;   // of the time, for data
  bool interrupted = false;
  std::string saved;  // folder of the model or the last checkpoint; empty: none
  Bytes planned;      // alive at the peak
  Bytes arena;        // allocated
  std::vector<TrainMemoryRow> memory;
};

struct TrainCurvePoint {
  int64_t step = 0;
  double loss = 0;
  double learning_rate = 0;
  double grad_norm = 0;  // not finite where the step was skipped
  double seconds = 0;
};

struct TrainEvalPoint {
  int64_t step = 0;
  double loss = 0;
};

// "5.8324"; "1.008e+15" of what went astray, "not a number" of what is none.
std::string LossText(double loss);

// A few lines for the terminal.
std::string TrainText(const TrainSummary& summary, const TextStyle& style);

// {"train_runtime", "train_samples_per_second", "train_loss", …, "planned_bytes", "arena_bytes",
// "measured", "peak"}; `plan` is the run's.
std::string TrainJson(const PlanReport& plan, const TrainSummary& summary);

// The plan's page with the curves of loss, learning rate and gradient norm.
ReportPage TrainPage(const PlanReport& plan, const Ledger& ledger, const TrainSummary& summary,
                     const std::vector<TrainCurvePoint>& steps,
                     const std::vector<TrainEvalPoint>& evaluations, std::string generator);

}  // namespace headroom
