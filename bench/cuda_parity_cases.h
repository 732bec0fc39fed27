// SPDX-License-Identifier: Apache-2.0
//
// What cuda_parity compares: small models of each family in each precision.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/tiny_models.h"

namespace headroom::engine {

struct Case {
  TinyModel model;
  NativeOptions options;
  bool cudnn = false;
};

struct Selection {
  bool quick = false;        // three models in bfloat16
  bool cudnn_alone = false;  // what is of cuDNN alone
  bool updates_alone = false;
  bool cudnn = true;  // beside our own kernels
  // Of the cases, which are dealt out one by one to so many parts.
  int64_t part = 0;
  int64_t parts = 1;
};

// "2/4" is the second of four parts. False on what is none.
bool ParsePart(const std::string& text, Selection& selection);

// Large enough for tensor-core kernels: those models that cuDNN serves.
bool IsWide(const TinyModel& model);

// All that the selection leaves, in their order.
std::vector<Case> Cases(const Selection& selection);

}  // namespace headroom::engine
