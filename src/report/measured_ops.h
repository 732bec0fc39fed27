// SPDX-License-Identifier: Apache-2.0
//
// MeasuredOpsReport: what `headroom ops --measure` says of one training step of the native engine:
// the time of its ops as a device took it, beside what they compute and move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "report/text.h"

namespace headroom {

// A sum over ops, of one optimizer step.
struct MeasuredLine {
  double seconds = 0;
  double flops = 0;
  double bytes = 0;
  double roofline_seconds = 0;  // at the data sheet's rates; 0 where they are not known
  double memory_seconds = 0;    // of `seconds`: ops that traffic bounds on the roofline
  int64_t ops = 0;

  MeasuredLine& operator+=(const MeasuredLine& other);
};

struct MeasuredCell {
  std::string phase;
  std::string op_class;
  MeasuredLine line;
};

struct MeasuredOp {
  std::string module;  // "bert.encoder.layer.3.output.dense"; of several: "layer.*"
  std::string op;      // "linear_backward_weight"
  std::string phase;
  std::string op_class;
  MeasuredLine line;
};

// The data sheet of the device, for the recipe's matrix products.
struct DeviceRates {
  std::string gpu;  // "H200"
  double product_flops = 0;
  double memory_bandwidth = 0;
};

struct MeasuredOpsReport {
  std::string model;
  std::vector<std::string> recipe;
  int64_t parameters = 0;
  std::string device;                      // "NVIDIA H200"; "CPU"
  std::optional<DeviceRates> rates;        // unset: the device is not in the catalogue
  std::optional<double> replayed_seconds;  // of the whole step in captured graphs; on a GPU
  Bytes arena;
  int runs = 0;

  std::vector<MeasuredOp> ops;  // as they run
  std::vector<std::string> assumptions;
  std::vector<std::string> warnings;
};

// Sums of report.ops, in the order of the step; those of no op are left out.
std::vector<MeasuredCell> CellsOf(const MeasuredOpsReport& report);
std::vector<MeasuredCell> PhasesOf(const MeasuredOpsReport& report);   // op_class empty
std::vector<MeasuredCell> ClassesOf(const MeasuredOpsReport& report);  // phase empty
MeasuredLine TotalOf(const MeasuredOpsReport& report);
// Layers of a stack together, the longest first.
std::vector<MeasuredOp> LargestOf(const MeasuredOpsReport& report, size_t count);
// Seconds of backward for a second of forward, ops of the name `without` not counted; 0 without a
// forward.
double BackwardOverForward(const MeasuredOpsReport& report, std::string_view without = "");
// Of a language model this op of forward is the last projection with its loss, and makes gradients.
inline constexpr std::string_view kLinearLoss = "linear_loss";

std::string MeasuredOpsText(const MeasuredOpsReport& report, const TextStyle& style);

// {"schema", "model", "parameters", "recipe", "device", "arena_bytes", "runs", "step", "total",
// "classes", "phases", "cells", "largest", "ops", "assumptions"}. What rests on rates that are not
// known is null.
std::string MeasuredOpsJson(const MeasuredOpsReport& report);

}  // namespace headroom
