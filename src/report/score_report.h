// SPDX-License-Identifier: Apache-2.0
//
// ScoreReport: predictions beside measurements, row by row, and the summary over all rows.
//
// A row is one measured run. It is predicted, or it is skipped with a reason; none is dropped. An
// error is (predicted - measured) / measured, and a row's phase error is that of its worst phase.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace headroom {

struct Comparison {
  std::string what;  // "allocated", "step 2 backward_end peak", …
  int64_t measured = 0;
  int64_t predicted = 0;

  double error() const;
  bool exact() const { return measured == predicted; }
};

// The smallest cap on reserved memory under which a run completes. The verdict is wrong when it
// says "fits" 1 % below the largest cap seen to fail, or refuses 1 % above the smallest seen to
// complete.
struct FitComparison {
  Comparison boundary;
  bool false_fit = false;
  bool false_refusal = false;
};

struct ScoreRow {
  std::string id;
  // Absent where the row does not hold the measurement.
  std::optional<Comparison> parameters;
  std::optional<Comparison> after_model;
  std::optional<Comparison> allocated;
  std::optional<Comparison> reserved;
  std::optional<Comparison> device;
  std::vector<Comparison> phases;  // allocated and peak of every phase
  std::optional<FitComparison> fit;

  // The phase comparison with the largest error; null without phases.
  const Comparison* WorstPhase() const;
  // The largest error of the row, over all comparisons of bytes.
  double WorstError() const;
};

struct SkippedRow {
  std::string id;
  std::string model_type;
  std::string reason;  // "architecture", "LoRA", "generation", …
};

struct ScoreReport {
  std::vector<ScoreRow> rows;
  std::vector<SkippedRow> skipped;
};

// How far a quantity is off over all rows that hold it. Errors are absolute fractions.
struct ErrorSummary {
  int rows = 0;
  int exact = 0;      // equal to the byte
  double median = 0;  // mean of the middle two when their number is even
  double p95 = 0;     // nearest rank
  double max = 0;
  int under_1pct = 0;  // predicted more than 1 % too low
};

struct FitSummary {
  int rows = 0;
  int false_fits = 0;
  int false_refusals = 0;
  ErrorSummary boundary;
};

struct ScoreSummary {
  int rows = 0;
  int supported = 0;
  std::map<std::string, int> unsupported;  // by model_type
  int params_exact = 0;
  int after_model_exact = 0;
  ErrorSummary allocated;
  ErrorSummary reserved;
  ErrorSummary device;
  ErrorSummary phase_allocated;
  FitSummary fit;
};

ScoreSummary Summarize(const ScoreReport& report);

// The `count` comparisons with the largest errors, worst first, each with its row's id; exact ones
// are left out. A row's phases stand for one, the worst.
struct WorstComparison {
  std::string id;
  Comparison comparison;
};
std::vector<WorstComparison> Worst(const ScoreReport& report, size_t count);

}  // namespace headroom
