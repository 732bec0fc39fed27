// SPDX-License-Identifier: Apache-2.0
//
// ParametersReport: what is known of a run whose model has no shape here: its weights, to the byte,
// and what follows from them by rule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "report/text.h"

namespace headroom {

struct StoredDType {
  std::string dtype;  // "BF16"
  int64_t tensors = 0;
  int64_t elements = 0;
  Bytes bytes;
};

struct ParametersReport {
  std::string model;
  std::string why;  // why nothing else is known: "model_type \"mamba\" is not modelled"
  std::vector<std::string> files;
  std::vector<StoredDType> stored;    // largest first; empty when only the sum is known
  std::optional<int64_t> parameters;  // of floating-point tensors
  Bytes stored_bytes;
  Bytes weights;                   // as they are loaded
  std::optional<Bytes> gradients;  // unset where the number of parameters is not known
  std::optional<Bytes> optimizer;
  std::string optim;
  Bytes context;
  std::string device;  // of --gpu; empty when only a size was given
  std::optional<Bytes> memory;
  std::vector<std::string> assumptions;
  std::vector<std::string> warnings;

  Bytes known() const {
    return weights + gradients.value_or(Bytes(0)) + optimizer.value_or(Bytes(0)) + context;
  }
  // What is known alone is more than the device has.
  bool exceeds() const { return memory && known() > *memory; }
};

std::string ParametersText(const ParametersReport& report, const TextStyle& style);

// {"schema", "model", "activations_modelled": false, "parameters", "stored", "known", "verdict",
// "assumptions"}; sizes in bytes. verdict.fits is "no" or "unknown"; null without a device.
std::string ParametersJson(const ParametersReport& report);

}  // namespace headroom
