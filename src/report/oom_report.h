// SPDX-License-Identifier: Apache-2.0
//
// OomReport: everything that is said about an out-of-memory message, as values.
//
// The message's figures under the ledger's names. What the message does not hold is unset, and a
// row without a figure is not shown:
//
//   device 139.80 GiB = other processes 0.01 + this process 5.75 + free 134.04
//   this process      = context 0.67 + reserved 5.08
//   reserved          = allocated 4.94 + cache 0.14
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "ledger/component.h"
#include "report/fit_report.h"
#include "report/plan_report.h"
#include "report/text.h"

namespace headroom {

// What `plan` makes of the run that failed.
struct OomPlan {
  std::string model;
  std::vector<std::string> recipe;
  Bytes allocated;  // peaks without a limit
  Bytes reserved;
  Bytes cap;        // on what the allocator may reserve, from the message's figures
  Verdict verdict;  // under it
  // The plan fails too, in the same phase and with the same request to a hundredth.
  bool same_phase = false;
  bool same_request = false;
  // What `fit` offers under the cap; unset when the plan fits, or when nothing could be tried.
  std::optional<FitReport> offers;
};

struct OomReport {
  std::string name;     // of the file
  std::string message;  // on one line
  std::string wording;  // "PyTorch 2.2 or newer"; empty when it does not tell
  int occurrences = 1;

  std::optional<int> device;
  std::optional<Bytes> requested;
  std::optional<Bytes> capacity;
  std::optional<Bytes> others;  // other processes and the driver
  std::optional<Bytes> process;
  std::optional<Bytes> context;  // of the process, outside the allocator
  std::optional<Bytes> reserved;
  std::optional<Bytes> allocated;
  std::optional<Bytes> cache;
  std::optional<Bytes> free;
  std::optional<Bytes> allowed;                       // by set_per_process_memory_fraction
  std::vector<std::pair<uint32_t, Bytes>> processes;  // other pids that the message names

  std::string phase;  // "forward", "load", …; empty when nothing tells
  std::string place;  // "modeling_gpt2.py:702 forward"; empty without a traceback
  std::string code;   // the line there
  Kind kind = Kind::kOther;
  // Without a traceback: what the request's size makes probable, in a sentence.
  std::string guess;

  std::vector<std::string> causes;  // why it failed, most telling first
  std::vector<std::string> next;    // what to do, most promising first
  std::optional<OomPlan> plan;
};

// A figure of the message. The signs of all that are there make a sum.
struct OomFigure {
  std::string_view sign;  // "+", "=" or empty
  std::string_view name;
  Bytes size;
  std::string_view meaning;
  std::optional<uint32_t> process = {};  // of another one that the message names; then no name
};
std::vector<OomFigure> OomFigures(const OomReport& report);

// The verdict in words.
std::string OomVerdict(const OomReport& report);
// Whether the plan fits under the cap, and whether it fails as the run did. REQUIRES: report.plan.
std::string OomPlanVerdict(const OomReport& report);
// "The cheapest change that fits: micro-batch 2 x 2.", or that none does.
std::string OomOfferSentence(const FitReport& offers);

std::string OomText(const OomReport& report, const TextStyle& style);

}  // namespace headroom
