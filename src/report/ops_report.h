// SPDX-License-Identifier: Apache-2.0
//
// OpsReport: what `headroom ops` says of one training step, as values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/text.h"

namespace headroom {

struct OpsLine {
  double flops = 0;
  double bytes = 0;
  double roofline_seconds = 0;  // at the data sheet's rates
  double reached_seconds = 0;   // at the rates that kernels reach
  double memory_seconds = 0;    // what traffic decides of roofline_seconds
  double kernels = 0;
};

struct OpsCell {
  std::string phase;
  std::string op_class;
  OpsLine line;
};

struct OpsGroup {
  std::string module;  // "bert.encoder.layer.*.output.dense"
  std::string op;      // "aten::addmm"
  std::string phase;
  std::string op_class;
  OpsLine line;
};

struct OpsReport {
  std::string model;
  std::vector<std::string> recipe;
  int64_t parameters = 0;
  std::string gpu;
  double product_flops = 0;  // of the data sheet, for the recipe's matrix products
  double memory_bandwidth = 0;
  std::vector<OpsCell> cells;   // phase by phase, class by class; empty ones left out
  std::vector<OpsCell> phases;  // sums over classes, op_class empty
  std::vector<OpsCell> classes;
  OpsLine total;
  std::vector<OpsGroup> largest;  // by roofline_seconds
  std::vector<std::string> assumptions;
  std::vector<std::string> warnings;
};

std::string OpsText(const OpsReport& report, const TextStyle& style);

// {"schema", "model", "gpu", "total", "classes", "phases", "cells", "largest", "assumptions"}:
// FLOP, bytes and seconds of one optimizer step.
std::string OpsJson(const OpsReport& report);

}  // namespace headroom
